package procedure

import (
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/journal/v1/journalv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
)

// former has the paths that procedures had in the previous release, by their
// current path. Nodes of that release know only these paths, so calls
// between nodes use them. A node also serves these paths to clients, whose
// requests and responses have the same form.
//
// The messages of DownloadModule changed, so its former path is not here.
var former = map[string]string{
	entityv1connect.EntityServiceSendCommandProcedure:       "/hostd.entity.v1.EntityService/Send",
	entityv1connect.EntityServiceSendCommandStreamProcedure: "/hostd.entity.v1.EntityService/SendStream",
	entityv1connect.EntityServiceQueryEntityProcedure:       "/hostd.entity.v1.EntityService/Query",
	entityv1connect.EntityServiceSubscribeEventsProcedure:   "/hostd.entity.v1.EntityService/Subscribe",
	entityv1connect.EntityServiceListHotEntitiesProcedure:   "/hostd.entity.v1.EntityService/HotEntities",
	entityv1connect.EntityServicePassivateEntityProcedure:   "/hostd.entity.v1.EntityService/Passivate",
	entityv1connect.EntityServiceDeleteEntityProcedure:      "/hostd.entity.v1.EntityService/Delete",

	modulev1connect.ModuleServiceUploadModuleProcedure:       "/hostd.module.v1.ModuleService/Upload",
	modulev1connect.ModuleServiceUploadModuleStreamProcedure: "/hostd.module.v1.ModuleService/UploadStream",
	modulev1connect.ModuleServiceListModulesProcedure:        "/hostd.module.v1.ModuleService/List",
	modulev1connect.ModuleServiceGetModuleProcedure:          "/hostd.module.v1.ModuleService/Get",
	modulev1connect.ModuleServiceActivateModuleProcedure:     "/hostd.module.v1.ModuleService/Activate",
	modulev1connect.ModuleServiceRollbackModuleProcedure:     "/hostd.module.v1.ModuleService/Rollback",
	modulev1connect.ModuleServiceVerifyModuleProcedure:       "/hostd.module.v1.ModuleService/Verify",

	clusterv1connect.ClusterServiceDrainNodeProcedure:       "/hostd.cluster.v1.ClusterService/Drain",
	clusterv1connect.ClusterServiceResumeNodeProcedure:      "/hostd.cluster.v1.ClusterService/Resume",
	clusterv1connect.ClusterServiceRemoveNodeProcedure:      "/hostd.cluster.v1.ClusterService/Leave",
	clusterv1connect.ClusterServiceDownNodeProcedure:        "/hostd.cluster.v1.ClusterService/Down",
	clusterv1connect.ClusterServiceRebalanceShardsProcedure: "/hostd.cluster.v1.ClusterService/Rebalance",

	journalv1connect.JournalServiceExportJournalProcedure: "/hostd.journal.v1.JournalService/Export",
	journalv1connect.JournalServiceImportJournalProcedure: "/hostd.journal.v1.JournalService/Import",
}

// current is the inverse of former.
var current = func() map[string]string {
	out := make(map[string]string, len(former))
	for now, before := range former {
		out[before] = now
	}
	return out
}()

// FormerPath returns the path of a procedure in the previous release, which is path
// itself if the procedure was not renamed.
func FormerPath(path string) string {
	if before, renamed := former[path]; renamed {
		return before
	}
	return path
}

// CurrentPath returns the current path of a procedure of the previous release, or
// path itself if it is not a former path.
func CurrentPath(path string) string {
	if now, renamed := current[path]; renamed {
		return now
	}
	return path
}
