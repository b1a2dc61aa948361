"""The gateway between rented pods and the Prefect API: a pod reaches its own run and nothing else.

Whoever holds the Prefect API's own credentials can run commands on the control machine, so a
rented pod gets this address and a token of its run instead; GitHub gets a token that can only
report pushes.

tokens       who asks: signed, stateless, with an end
rules        what a pod may ask over HTTP, and how the question is narrowed
frames       what a pod may say and hear on the three sockets
ownership    whose a flow run, deployment, artifact … is, looked up and remembered
upstream     the Prefect API as the gateway reaches it
sockets      passes frames both ways
events_door  POST /push, for GitHub
bundle       GET /bundle/<run>, the code that a pod runs
app          all of it as one ASGI application
"""
