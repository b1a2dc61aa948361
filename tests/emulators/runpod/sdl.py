"""The part of RunPod's GraphQL schema that the emulator answers."""

SDL = """
enum CloudTypeEnum { ALL SECURE COMMUNITY }

input PodFilter { podId: String! }
input PodTerminateInput { podId: String! }
input PodStopInput { podId: String! }
input PodResumeInput { podId: String! gpuCount: Int }
input GpuTypeFilter { id: String ids: [String] }
input GpuLowestPriceInput {
  gpuCount: Int secureCloud: Boolean dataCenterId: String countryCode: String minDisk: Int
  minMemoryInGb: Int minVcpuCount: Int minCudaVersion: String totalDisk: Int
}
input EnvironmentVariableInput { key: String! value: String! }
input PodFindAndDeployOnDemandInput {
  cloudType: CloudTypeEnum = ALL
  name: String!
  imageName: String
  gpuTypeId: String!
  gpuCount: Int = 1
  dataCenterId: String countryCode: String
  containerDiskInGb: Int volumeInGb: Int volumeMountPath: String volumeKey: String
  networkVolumeId: String
  minCudaVersion: String allowedCudaVersions: [String] cudaVersion: String
  env: [EnvironmentVariableInput]
  ports: String
  dockerArgs: String
  templateId: String
  containerRegistryAuthId: String
  startSsh: Boolean startJupyter: Boolean supportPublicIp: Boolean
  stopAfter: String terminateAfter: String
  deployCost: Float
  minMemoryInGb: Int minVcpuCount: Int minDownload: Int minUpload: Int minDisk: Int
  compliance: [String]
}

type Port { ip: String isIpPublic: Boolean privatePort: Int publicPort: Int type: String }
type RuntimeGpu { id: String gpuUtilPercent: Float memoryUtilPercent: Float }
type RuntimeContainer { cpuPercent: Float memoryPercent: Float }
type Runtime {
  uptimeInSeconds: Int ports: [Port] gpus: [RuntimeGpu] container: RuntimeContainer
}
type Machine {
  podHostId: String gpuDisplayName: String maxDownloadSpeedMbps: Int maxUploadSpeedMbps: Int
}
type Pod {
  id: String! name: String imageName: String
  desiredStatus: String lastStatusChange: String podType: String
  containerDiskInGb: Int volumeInGb: Float volumeMountPath: String
  costPerHr: Float dockerArgs: String dockerId: String env: [String]
  gpuCount: Int vcpuCount: Float memoryInGb: Float
  machineId: String machine: Machine
  port: Int ports: String uptimeSeconds: Int runtime: Runtime
}
type NetworkVolume { id: String name: String size: Int dataCenterId: String }
type User {
  id: String email: String pubKey: String
  clientBalance: Float currentSpendPerHr: Float
  pods: [Pod] networkVolumes: [NetworkVolume]
}
type LowestPrice {
  gpuName: String gpuTypeId: String minimumBidPrice: Float uninterruptablePrice: Float
  minVcpu: Int minMemory: Int stockStatus: String
}
type GpuType {
  id: String displayName: String manufacturer: String memoryInGb: Int maxGpuCount: Int
  cudaCores: Int secureCloud: Boolean communityCloud: Boolean
  securePrice: Float communityPrice: Float
  oneMonthPrice: Float threeMonthPrice: Float oneWeekPrice: Float
  communitySpotPrice: Float secureSpotPrice: Float
  lowestPrice(input: GpuLowestPriceInput): LowestPrice
}
type DataCenter { id: String name: String location: String listed: Boolean }

type Query {
  myself: User
  pod(input: PodFilter!): Pod
  gpuTypes(input: GpuTypeFilter): [GpuType]
  dataCenters: [DataCenter]
  countryCodes: [String]
}
type Mutation {
  podFindAndDeployOnDemand(input: PodFindAndDeployOnDemandInput!): Pod
  podTerminate(input: PodTerminateInput!): Boolean
  podStop(input: PodStopInput!): Pod
  podResume(input: PodResumeInput!): Pod
}
"""
