package security

// listener is one of a node's listeners.
type listener string

const (
	clients listener = "clients"
	peers   listener = "peers"
)

// credential is the credential of a caller.
type credential string

const (
	anonymous credential = "anonymous" // no credential
	// hello is the ID of a node in the headers of calls between nodes, which
	// any caller can claim. The node of hello has not joined the cluster; the
	// node of member has.
	hello  credential = "hello"
	member credential = "member"
)

var (
	listeners   = []listener{clients, peers}
	credentials = []credential{anonymous, hello, member}
)

// access is the result of a call.
type access string

const (
	reached access = "reached" // the procedure itself checks the request
	refused access = "refused" // the caller is rejected, whichever procedure it calls
	absent  access = "absent"  // there is no such procedure: 404
)

// rule is the expected access to a procedure.
type rule map[listener]map[credential]access

// all returns the same access for every caller.
func all(a access) map[credential]access {
	return map[credential]access{anonymous: a, hello: a, member: a}
}

var (
	// forClients is the rule of procedures that clients may call, and that no
	// node calls.
	forClients = rule{clients: all(reached), peers: all(absent)}
	// betweenNodes is the rule of procedures that only members may call.
	betweenNodes = rule{clients: all(absent), peers: {anonymous: refused, hello: refused, member: reached}}
	// ofAnyNode is the rule of procedures that members and nodes that have not
	// joined may call.
	ofAnyNode = rule{clients: all(absent), peers: {anonymous: refused, hello: reached, member: reached}}
	// ofNoNode is the rule of procedures that do not exist. Only members get
	// the answer that they do not exist.
	ofNoNode = rule{clients: all(absent), peers: {anonymous: refused, hello: refused, member: absent}}
)

// table has every procedure and endpoint. The test fails if an entry is
// missing.
var table = map[string]rule{
	"/hostd.entity.v1.EntityService/SendCommand":       forClients,
	"/hostd.entity.v1.EntityService/SendCommandStream": forClients,
	"/hostd.entity.v1.EntityService/QueryEntity":       forClients,
	"/hostd.entity.v1.EntityService/ReadEvents":        forClients,
	"/hostd.entity.v1.EntityService/ReadRecords":       forClients,
	"/hostd.entity.v1.EntityService/SubscribeEvents":   forClients,
	"/hostd.entity.v1.EntityService/GetEntity":         forClients,
	"/hostd.entity.v1.EntityService/GetState":          forClients,
	"/hostd.entity.v1.EntityService/ListEntities":      forClients,
	"/hostd.entity.v1.EntityService/ListHotEntities":   forClients,
	"/hostd.entity.v1.EntityService/PassivateEntity":   forClients,
	"/hostd.entity.v1.EntityService/ClearFaults":       forClients,
	"/hostd.entity.v1.EntityService/ClearTypeFaults":   forClients,
	"/hostd.entity.v1.EntityService/SkipTimer":         forClients,
	"/hostd.entity.v1.EntityService/DeleteEntity":      forClients,
	"/hostd.entity.v1.EntityService/ListTimers":        forClients,
	"/hostd.entity.v1.EntityService/ListMessages":      forClients,
	"/hostd.entity.v1.EntityService/ListDeadLetters":   forClients,
	"/hostd.entity.v1.EntityService/RetryDeadLetter":   forClients,
	"/hostd.entity.v1.EntityService/DiscardDeadLetter": forClients,

	"/hostd.workflow.v1.WorkflowService/StartWorkflow":      forClients,
	"/hostd.workflow.v1.WorkflowService/GetWorkflow":        forClients,
	"/hostd.workflow.v1.WorkflowService/SignalWorkflow":     forClients,
	"/hostd.workflow.v1.WorkflowService/CancelWorkflow":     forClients,
	"/hostd.workflow.v1.WorkflowService/TerminateWorkflow":  forClients,
	"/hostd.workflow.v1.WorkflowService/QueryWorkflow":      forClients,
	"/hostd.workflow.v1.WorkflowService/ListWorkflows":      forClients,
	"/hostd.workflow.v1.WorkflowService/GetWorkflowHistory": forClients,

	"/hostd.module.v1.ModuleService/UploadModule":         forClients,
	"/hostd.module.v1.ModuleService/UploadModuleStream":   forClients,
	"/hostd.module.v1.ModuleService/ListModules":          forClients,
	"/hostd.module.v1.ModuleService/GetModule":            forClients,
	"/hostd.module.v1.ModuleService/DownloadModule":       forClients,
	"/hostd.module.v1.ModuleService/ActivateModule":       forClients,
	"/hostd.module.v1.ModuleService/RollbackModule":       forClients,
	"/hostd.module.v1.ModuleService/GetRollout":           forClients,
	"/hostd.module.v1.ModuleService/ChangeRollout":        forClients,
	"/hostd.module.v1.ModuleService/GetActivationHistory": forClients,
	"/hostd.module.v1.ModuleService/SetOwner":             forClients,
	"/hostd.module.v1.ModuleService/DeleteModule":         forClients,
	"/hostd.module.v1.ModuleService/GetQuotas":            forClients,
	"/hostd.module.v1.ModuleService/VerifyModule":         forClients,
	"/hostd.module.v1.ModuleService/CheckCompatibility":   forClients,

	"/hostd.cluster.v1.ClusterService/GetCluster":        forClients,
	"/hostd.cluster.v1.ClusterService/ListShards":        forClients,
	"/hostd.cluster.v1.ClusterService/WatchCluster":      forClients,
	"/hostd.cluster.v1.ClusterService/WatchShards":       forClients,
	"/hostd.cluster.v1.ClusterService/WatchStats":        forClients,
	"/hostd.cluster.v1.ClusterService/TailLogs":          forClients,
	"/hostd.cluster.v1.ClusterService/ProfileNode":       forClients,
	"/hostd.cluster.v1.ClusterService/ProfileGuests":     forClients,
	"/hostd.cluster.v1.ClusterService/MoveShard":         forClients,
	"/hostd.cluster.v1.ClusterService/DrainNode":         forClients,
	"/hostd.cluster.v1.ClusterService/ResumeNode":        forClients,
	"/hostd.cluster.v1.ClusterService/RemoveNode":        forClients,
	"/hostd.cluster.v1.ClusterService/DownNode":          forClients,
	"/hostd.cluster.v1.ClusterService/RebalanceShards":   forClients,
	"/hostd.cluster.v1.ClusterService/FinalizeUpgrade":   forClients,
	"/hostd.cluster.v1.ClusterService/InitializeCluster": forClients,
	"/hostd.cluster.v1.ClusterService/SetPolicy":         forClients,
	"/hostd.cluster.v1.ClusterService/PutSetting":        forClients,
	"/hostd.cluster.v1.ClusterService/GetSetting":        forClients,
	"/hostd.cluster.v1.ClusterService/ListSettings":      forClients,
	"/hostd.cluster.v1.ClusterService/WatchSettings":     forClients,

	"/hostd.cluster.v1.ClusterService/ListRoles":         forClients,
	"/hostd.cluster.v1.ClusterService/PutRole":           forClients,
	"/hostd.cluster.v1.ClusterService/DeleteRole":        forClients,
	"/hostd.cluster.v1.ClusterService/ListRoleBindings":  forClients,
	"/hostd.cluster.v1.ClusterService/PutRoleBinding":    forClients,
	"/hostd.cluster.v1.ClusterService/DeleteRoleBinding": forClients,
	"/hostd.cluster.v1.ClusterService/ListTokens":        forClients,
	"/hostd.cluster.v1.ClusterService/CreateToken":       forClients,
	"/hostd.cluster.v1.ClusterService/DeleteToken":       forClients,
	"/hostd.cluster.v1.ClusterService/CheckAccess":       forClients,

	"/hostd.journal.v1.JournalService/ExportJournal": forClients,
	"/hostd.journal.v1.JournalService/ImportJournal": forClients,

	"/hostd.peer.v1.PeerService/Link":          ofAnyNode,
	"/hostd.peer.v1.PeerService/Probe":         ofAnyNode,
	"/hostd.peer.v1.PeerService/Pledge":        ofAnyNode,
	"/hostd.peer.v1.PeerService/Vouch":         ofAnyNode,
	"/hostd.peer.v1.PeerService/Join":          ofAnyNode,
	"/hostd.peer.v1.PeerService/PrepareLevel":  betweenNodes,
	"/hostd.peer.v1.PeerService/Reach":         betweenNodes,
	"/hostd.peer.v1.PeerService/Propose":       betweenNodes,
	"/hostd.peer.v1.PeerService/ReadMeta":      betweenNodes,
	"/hostd.peer.v1.PeerService/Report":        betweenNodes,
	"/hostd.peer.v1.PeerService/Renew":         ofAnyNode,
	"/hostd.peer.v1.PeerService/Sizes":         betweenNodes,
	"/hostd.peer.v1.PeerService/HandOver":      betweenNodes,
	"/hostd.peer.v1.PeerService/CompareRows":   betweenNodes,
	"/hostd.peer.v1.PeerService/Prepare":       betweenNodes,
	"/hostd.peer.v1.PeerService/AwaitBindings": betweenNodes,
	"/hostd.peer.v1.PeerService/Counts":        betweenNodes,
	"/hostd.peer.v1.PeerService/GetBlob":       betweenNodes,
	"/hostd.peer.v1.PeerService/PutBlob":       betweenNodes,
	"/hostd.peer.v1.PeerService/SendSnapshot":  ofAnyNode,

	"/hostd.peer.v1.ForwardService/Forward": betweenNodes,

	"/hostd.peer.v1.TransferService/Hold":        betweenNodes,
	"/hostd.peer.v1.TransferService/Cut":         betweenNodes,
	"/hostd.peer.v1.TransferService/Confirm":     betweenNodes,
	"/hostd.peer.v1.TransferService/Release":     betweenNodes,
	"/hostd.peer.v1.TransferService/ReadCut":     betweenNodes,
	"/hostd.peer.v1.TransferService/ImportState": betweenNodes,
	"/hostd.peer.v1.TransferService/ImportChunk": betweenNodes,
}

// hopped lists the services that nodes call on behalf of their clients, below
// hopPath.
var hopped = []string{"hostd.entity.v1.EntityService", "hostd.workflow.v1.WorkflowService", "hostd.cluster.v1.ClusterService"}

const hopPath = "/hostd.hop"

// plain are the endpoints that are not RPC procedures.
var plain = map[string]rule{
	"/livez":                       forClients,
	"/readyz":                      forClients,
	"/metrics":                     forClients,
	"/openapi.json":                forClients,
	"/grpc.health.v1.Health/Check": forClients,
	"/grpc.health.v1.Health/Watch": forClients,
	"/grpc.reflection.v1.ServerReflection/ServerReflectionInfo":      forClients,
	"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": forClients,
	"/":                                {clients: all(absent), peers: all(absent)},
	"/hostd.peer.v1.PeerService/Other": ofNoNode,
	"/hostd.peer.v1.OtherService/Link": {clients: all(absent), peers: all(absent)},
	hopPath + "/hostd.peer.v1.PeerService/Propose":                ofNoNode,
	hopPath + "/hostd.module.v1.ModuleService/VerifyModule":       betweenNodes,
	hopPath + "/hostd.module.v1.ModuleService/CheckCompatibility": betweenNodes,
	hopPath + "/hostd.module.v1.ModuleService/ListModules":        ofNoNode,
	hopPath + "/hostd.journal.v1.JournalService/ExportJournal":    ofNoNode,
}
