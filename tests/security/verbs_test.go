package security

// roleVerbs lists the verbs of each role, as documented for operators. It is
// written independently of the program.
var roleVerbs = map[string][]string{
	"viewer":   {"query", "read"},
	"invoker":  {"invoke", "query"},
	"operator": {"query", "read", "operate", "settings"},
	"deployer": {"read", "deploy", "download"},
	"admin":    {"invoke", "query", "read", "operate", "deploy", "download", "settings", "admin", "export", "security"},
	"stranger": nil, // a caller without a role
}

// self is the verb of procedures that every known caller may call.
const self = "self"

// procedureVerbs has the verb of every client procedure. The test fails if a
// procedure is missing.
var procedureVerbs = map[string]string{
	"/hostd.entity.v1.EntityService/SendCommand":       "invoke",
	"/hostd.entity.v1.EntityService/SendCommandStream": "invoke",
	"/hostd.entity.v1.EntityService/QueryEntity":       "query",
	"/hostd.entity.v1.EntityService/GetState":          "query",
	"/hostd.entity.v1.EntityService/ReadEvents":        "read",
	"/hostd.entity.v1.EntityService/ReadRecords":       "read",
	"/hostd.entity.v1.EntityService/SubscribeEvents":   "read",
	"/hostd.entity.v1.EntityService/GetEntity":         "read",
	"/hostd.entity.v1.EntityService/ListEntities":      "read",
	"/hostd.entity.v1.EntityService/ListHotEntities":   "read",
	"/hostd.entity.v1.EntityService/ListTimers":        "read",
	"/hostd.entity.v1.EntityService/ListMessages":      "read",
	"/hostd.entity.v1.EntityService/ListDeadLetters":   "read",
	"/hostd.entity.v1.EntityService/PassivateEntity":   "operate",
	"/hostd.entity.v1.EntityService/ClearFaults":       "operate",
	"/hostd.entity.v1.EntityService/ClearTypeFaults":   "operate",
	"/hostd.entity.v1.EntityService/SkipTimer":         "operate",
	"/hostd.entity.v1.EntityService/DeleteEntity":      "operate",
	"/hostd.entity.v1.EntityService/RetryDeadLetter":   "operate",
	"/hostd.entity.v1.EntityService/DiscardDeadLetter": "operate",

	"/hostd.workflow.v1.WorkflowService/StartWorkflow":      "invoke",
	"/hostd.workflow.v1.WorkflowService/GetWorkflow":        "query",
	"/hostd.workflow.v1.WorkflowService/SignalWorkflow":     "invoke",
	"/hostd.workflow.v1.WorkflowService/CancelWorkflow":     "invoke",
	"/hostd.workflow.v1.WorkflowService/TerminateWorkflow":  "invoke",
	"/hostd.workflow.v1.WorkflowService/QueryWorkflow":      "query",
	"/hostd.workflow.v1.WorkflowService/ListWorkflows":      "read",
	"/hostd.workflow.v1.WorkflowService/GetWorkflowHistory": "read",

	"/hostd.module.v1.ModuleService/ListModules":          "read",
	"/hostd.module.v1.ModuleService/GetModule":            "read",
	"/hostd.module.v1.ModuleService/GetActivationHistory": "read",
	"/hostd.module.v1.ModuleService/GetRollout":           "read",
	"/hostd.module.v1.ModuleService/ChangeRollout":        "deploy",
	"/hostd.module.v1.ModuleService/GetQuotas":            "read",
	"/hostd.module.v1.ModuleService/DownloadModule":       "download",
	"/hostd.module.v1.ModuleService/UploadModule":         "deploy",
	"/hostd.module.v1.ModuleService/UploadModuleStream":   "deploy",
	"/hostd.module.v1.ModuleService/ActivateModule":       "deploy",
	"/hostd.module.v1.ModuleService/RollbackModule":       "deploy",
	"/hostd.module.v1.ModuleService/SetOwner":             "deploy",
	"/hostd.module.v1.ModuleService/DeleteModule":         "deploy",
	"/hostd.module.v1.ModuleService/VerifyModule":         "deploy",
	"/hostd.module.v1.ModuleService/CheckCompatibility":   "deploy",

	"/hostd.cluster.v1.ClusterService/GetCluster":        "read",
	"/hostd.cluster.v1.ClusterService/ListShards":        "read",
	"/hostd.cluster.v1.ClusterService/WatchCluster":      "read",
	"/hostd.cluster.v1.ClusterService/WatchShards":       "read",
	"/hostd.cluster.v1.ClusterService/WatchStats":        "read",
	"/hostd.cluster.v1.ClusterService/TailLogs":          "read",
	"/hostd.cluster.v1.ClusterService/ProfileNode":       "admin",
	"/hostd.cluster.v1.ClusterService/ProfileGuests":     "read",
	"/hostd.cluster.v1.ClusterService/GetSetting":        "read",
	"/hostd.cluster.v1.ClusterService/ListSettings":      "read",
	"/hostd.cluster.v1.ClusterService/WatchSettings":     "read",
	"/hostd.cluster.v1.ClusterService/PutSetting":        "settings",
	"/hostd.cluster.v1.ClusterService/MoveShard":         "admin",
	"/hostd.cluster.v1.ClusterService/DrainNode":         "admin",
	"/hostd.cluster.v1.ClusterService/ResumeNode":        "admin",
	"/hostd.cluster.v1.ClusterService/RemoveNode":        "admin",
	"/hostd.cluster.v1.ClusterService/DownNode":          "admin",
	"/hostd.cluster.v1.ClusterService/RebalanceShards":   "admin",
	"/hostd.cluster.v1.ClusterService/FinalizeUpgrade":   "admin",
	"/hostd.cluster.v1.ClusterService/InitializeCluster": "admin",
	"/hostd.cluster.v1.ClusterService/SetPolicy":         "admin",

	"/hostd.cluster.v1.ClusterService/ListRoles":         "security",
	"/hostd.cluster.v1.ClusterService/PutRole":           "security",
	"/hostd.cluster.v1.ClusterService/DeleteRole":        "security",
	"/hostd.cluster.v1.ClusterService/ListRoleBindings":  "security",
	"/hostd.cluster.v1.ClusterService/PutRoleBinding":    "security",
	"/hostd.cluster.v1.ClusterService/DeleteRoleBinding": "security",
	"/hostd.cluster.v1.ClusterService/ListTokens":        "security",
	"/hostd.cluster.v1.ClusterService/CreateToken":       "security",
	"/hostd.cluster.v1.ClusterService/DeleteToken":       "security",
	"/hostd.cluster.v1.ClusterService/CheckAccess":       self,

	"/hostd.journal.v1.JournalService/ExportJournal": "export",
	"/hostd.journal.v1.JournalService/ImportJournal": "admin",
}
