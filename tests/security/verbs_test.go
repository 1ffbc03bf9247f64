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

// procedureVerbs has the verb of every client procedure. The test fails if one
// is missing.
var procedureVerbs = map[string]string{
	"/hostd.entity.v1.EntityService/Send":              "invoke",
	"/hostd.entity.v1.EntityService/SendStream":        "invoke",
	"/hostd.entity.v1.EntityService/Query":             "query",
	"/hostd.entity.v1.EntityService/GetState":          "query",
	"/hostd.entity.v1.EntityService/ReadEvents":        "read",
	"/hostd.entity.v1.EntityService/ReadRecords":       "read",
	"/hostd.entity.v1.EntityService/Subscribe":         "read",
	"/hostd.entity.v1.EntityService/GetEntity":         "read",
	"/hostd.entity.v1.EntityService/ListEntities":      "read",
	"/hostd.entity.v1.EntityService/HotEntities":       "read",
	"/hostd.entity.v1.EntityService/ListTimers":        "read",
	"/hostd.entity.v1.EntityService/ListMessages":      "read",
	"/hostd.entity.v1.EntityService/ListDeadLetters":   "read",
	"/hostd.entity.v1.EntityService/Passivate":         "operate",
	"/hostd.entity.v1.EntityService/ClearFaults":       "operate",
	"/hostd.entity.v1.EntityService/ClearTypeFaults":   "operate",
	"/hostd.entity.v1.EntityService/SkipTimer":         "operate",
	"/hostd.entity.v1.EntityService/Delete":            "operate",
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

	"/hostd.module.v1.ModuleService/List":               "read",
	"/hostd.module.v1.ModuleService/Get":                "read",
	"/hostd.module.v1.ModuleService/GetHistory":         "read",
	"/hostd.module.v1.ModuleService/GetRollout":         "read",
	"/hostd.module.v1.ModuleService/ChangeRollout":      "deploy",
	"/hostd.module.v1.ModuleService/GetQuotas":          "read",
	"/hostd.module.v1.ModuleService/Download":           "download",
	"/hostd.module.v1.ModuleService/Upload":             "deploy",
	"/hostd.module.v1.ModuleService/UploadStream":       "deploy",
	"/hostd.module.v1.ModuleService/Activate":           "deploy",
	"/hostd.module.v1.ModuleService/Rollback":           "deploy",
	"/hostd.module.v1.ModuleService/SetOwner":           "deploy",
	"/hostd.module.v1.ModuleService/Remove":             "deploy",
	"/hostd.module.v1.ModuleService/Verify":             "deploy",
	"/hostd.module.v1.ModuleService/CheckCompatibility": "deploy",

	"/hostd.cluster.v1.ClusterService/GetCluster":      "read",
	"/hostd.cluster.v1.ClusterService/ListShards":      "read",
	"/hostd.cluster.v1.ClusterService/WatchCluster":    "read",
	"/hostd.cluster.v1.ClusterService/WatchShards":     "read",
	"/hostd.cluster.v1.ClusterService/WatchStats":      "read",
	"/hostd.cluster.v1.ClusterService/TailLogs":        "read",
	"/hostd.cluster.v1.ClusterService/ProfileNode":     "admin",
	"/hostd.cluster.v1.ClusterService/ProfileGuests":   "read",
	"/hostd.cluster.v1.ClusterService/GetSetting":      "read",
	"/hostd.cluster.v1.ClusterService/ListSettings":    "read",
	"/hostd.cluster.v1.ClusterService/WatchSettings":   "read",
	"/hostd.cluster.v1.ClusterService/PutSetting":      "settings",
	"/hostd.cluster.v1.ClusterService/MoveShard":       "admin",
	"/hostd.cluster.v1.ClusterService/Drain":           "admin",
	"/hostd.cluster.v1.ClusterService/Resume":          "admin",
	"/hostd.cluster.v1.ClusterService/Leave":           "admin",
	"/hostd.cluster.v1.ClusterService/Down":            "admin",
	"/hostd.cluster.v1.ClusterService/Rebalance":       "admin",
	"/hostd.cluster.v1.ClusterService/FinalizeUpgrade": "admin",
	"/hostd.cluster.v1.ClusterService/Initialize":      "admin",
	"/hostd.cluster.v1.ClusterService/SetPolicy":       "admin",

	"/hostd.cluster.v1.ClusterService/ListRoles":         "security",
	"/hostd.cluster.v1.ClusterService/PutRole":           "security",
	"/hostd.cluster.v1.ClusterService/DeleteRole":        "security",
	"/hostd.cluster.v1.ClusterService/ListRoleBindings":  "security",
	"/hostd.cluster.v1.ClusterService/PutRoleBinding":    "security",
	"/hostd.cluster.v1.ClusterService/DeleteRoleBinding": "security",
	"/hostd.cluster.v1.ClusterService/ListTokens":        "security",
	"/hostd.cluster.v1.ClusterService/CreateToken":       "security",
	"/hostd.cluster.v1.ClusterService/DeleteToken":       "security",
	"/hostd.cluster.v1.ClusterService/CanI":              self,

	"/hostd.journal.v1.JournalService/Export": "export",
	"/hostd.journal.v1.JournalService/Import": "admin",
}
