package procedure

import (
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	"github.com/hostd/hostd/api/gen/hostd/journal/v1/journalv1connect"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/api/gen/hostd/workflow/v1/workflowv1connect"
)

// table has what the protos do not say about each procedure.
var table = map[string]Procedure{
	entityv1connect.EntityServiceSendCommandProcedure:       {Of: ofSend, Frequent: true, HandChecked: true},
	entityv1connect.EntityServiceSendCommandStreamProcedure: {Scope: Later, Frequent: true, OwnCodec: true},
	entityv1connect.EntityServiceQueryEntityProcedure:       {Of: ofQuery, Frequent: true, HandChecked: true},
	entityv1connect.EntityServiceReadEventsProcedure:        {Of: ofEntity},
	entityv1connect.EntityServiceReadRecordsProcedure:       {Of: ofEntity},
	entityv1connect.EntityServiceSubscribeEventsProcedure:   {Of: ofTypeAndItsEntities},
	entityv1connect.EntityServiceGetEntityProcedure:         {Of: ofEntity},
	entityv1connect.EntityServiceGetStateProcedure:          {Of: ofEntity},
	entityv1connect.EntityServiceListEntitiesProcedure:      {Of: ofListing, Narrows: true},
	entityv1connect.EntityServiceListHotEntitiesProcedure:   {Of: ofEverything},
	entityv1connect.EntityServiceListTimersProcedure:        {Of: ofEntity},
	entityv1connect.EntityServiceListMessagesProcedure:      {Of: ofEntity},
	entityv1connect.EntityServicePassivateEntityProcedure:   {Of: ofEntity},
	entityv1connect.EntityServiceClearFaultsProcedure:       {Of: ofEntity},
	entityv1connect.EntityServiceClearTypeFaultsProcedure:   {Of: ofTypeAndItsEntities},
	entityv1connect.EntityServiceSkipTimerProcedure:         {Of: ofEntity},
	entityv1connect.EntityServiceDeleteEntityProcedure:      {Of: ofEntity},
	// A dead letter is identified by its place in a shard, from which its
	// entity cannot be derived here.
	entityv1connect.EntityServiceListDeadLettersProcedure:   {Of: ofEverything},
	entityv1connect.EntityServiceRetryDeadLetterProcedure:   {Of: ofEverything},
	entityv1connect.EntityServiceDiscardDeadLetterProcedure: {Of: ofEverything},

	// A run is an entity, so these calls need the rights of the commands and the
	// query that they stand for.
	workflowv1connect.WorkflowServiceStartWorkflowProcedure:      {Of: ofRun("start")},
	workflowv1connect.WorkflowServiceGetWorkflowProcedure:        {Of: ofRun("state")},
	workflowv1connect.WorkflowServiceSignalWorkflowProcedure:     {Of: ofRun("signal")},
	workflowv1connect.WorkflowServiceCancelWorkflowProcedure:     {Of: ofRun("cancel")},
	workflowv1connect.WorkflowServiceTerminateWorkflowProcedure:  {Of: ofRun("terminate")},
	workflowv1connect.WorkflowServiceQueryWorkflowProcedure:      {Of: ofRunQuery},
	workflowv1connect.WorkflowServiceListWorkflowsProcedure:      {Of: ofListing, Narrows: true},
	workflowv1connect.WorkflowServiceGetWorkflowHistoryProcedure: {Of: ofEntity},

	modulev1connect.ModuleServiceUploadModuleProcedure:         {Scope: Later, Compiles: true, Upload: true, Slow: true},
	modulev1connect.ModuleServiceUploadModuleStreamProcedure:   {Scope: Later, Compiles: true, Pieces: true},
	modulev1connect.ModuleServiceDeleteModuleProcedure:         {Scope: Later},
	modulev1connect.ModuleServiceListModulesProcedure:          {Of: ofEverything},
	modulev1connect.ModuleServiceGetModuleProcedure:            {Scope: OfModules},
	modulev1connect.ModuleServiceDownloadModuleProcedure:       {Scope: OfModules},
	modulev1connect.ModuleServiceGetQuotasProcedure:            {Scope: OfNothing},
	modulev1connect.ModuleServiceActivateModuleProcedure:       {Of: ofType, Compiles: true, Slow: true},
	modulev1connect.ModuleServiceRollbackModuleProcedure:       {Of: ofType, Compiles: true},
	modulev1connect.ModuleServiceGetRolloutProcedure:           {Scope: OfModules},
	modulev1connect.ModuleServiceChangeRolloutProcedure:        {Of: ofType, Compiles: true},
	modulev1connect.ModuleServiceGetActivationHistoryProcedure: {Of: ofTypeAndItsEntities},
	modulev1connect.ModuleServiceSetOwnerProcedure:             {Of: ofType},
	modulev1connect.ModuleServiceVerifyModuleProcedure:         {Of: ofType},
	modulev1connect.ModuleServiceCheckCompatibilityProcedure:   {Of: ofType},

	clusterv1connect.ClusterServiceInitializeClusterProcedure: {Scope: Founding, BeforeOpen: true},
	clusterv1connect.ClusterServiceGetClusterProcedure:        {Scope: OfNothing},
	clusterv1connect.ClusterServiceListShardsProcedure:        {Scope: OfNothing},
	clusterv1connect.ClusterServiceWatchClusterProcedure:      {Scope: OfNothing},
	clusterv1connect.ClusterServiceWatchShardsProcedure:       {Scope: OfNothing},
	clusterv1connect.ClusterServiceWatchStatsProcedure:        {Of: ofEverything},
	clusterv1connect.ClusterServiceTailLogsProcedure:          {Of: ofEntity},
	clusterv1connect.ClusterServiceProfileNodeProcedure:       {Scope: OfNothing},
	clusterv1connect.ClusterServiceProfileGuestsProcedure:     {Of: ofTypeAndItsEntities},
	clusterv1connect.ClusterServiceMoveShardProcedure:         {Scope: OfNothing},
	clusterv1connect.ClusterServiceDrainNodeProcedure:         {Scope: OfNothing},
	clusterv1connect.ClusterServiceResumeNodeProcedure:        {Scope: OfNothing},
	clusterv1connect.ClusterServiceRemoveNodeProcedure:        {Scope: OfNothing},
	clusterv1connect.ClusterServiceDownNodeProcedure:          {Scope: OfNothing},
	clusterv1connect.ClusterServiceRebalanceShardsProcedure:   {Scope: OfNothing},
	clusterv1connect.ClusterServiceFinalizeUpgradeProcedure:   {Scope: OfNothing},
	clusterv1connect.ClusterServiceSetPolicyProcedure:         {Scope: OfNothing},
	clusterv1connect.ClusterServicePutSettingProcedure:        {Of: ofSetting},
	clusterv1connect.ClusterServiceGetSettingProcedure:        {Of: ofSetting},
	clusterv1connect.ClusterServiceListSettingsProcedure:      {Of: ofSettings},
	clusterv1connect.ClusterServiceWatchSettingsProcedure:     {Of: ofSettings},

	clusterv1connect.ClusterServiceListRolesProcedure:         {Scope: OfNothing},
	clusterv1connect.ClusterServicePutRoleProcedure:           {Scope: OfNothing},
	clusterv1connect.ClusterServiceDeleteRoleProcedure:        {Scope: OfNothing},
	clusterv1connect.ClusterServiceListRoleBindingsProcedure:  {Scope: OfNothing},
	clusterv1connect.ClusterServicePutRoleBindingProcedure:    {Scope: OfNothing},
	clusterv1connect.ClusterServiceDeleteRoleBindingProcedure: {Scope: OfNothing},
	clusterv1connect.ClusterServiceListTokensProcedure:        {Scope: OfNothing},
	clusterv1connect.ClusterServiceCreateTokenProcedure:       {Scope: OfNothing},
	clusterv1connect.ClusterServiceDeleteTokenProcedure:       {Scope: OfNothing},
	clusterv1connect.ClusterServiceCheckAccessProcedure:       {Scope: OfNothing},

	journalv1connect.JournalServiceExportJournalProcedure: {Of: ofEverything},
	journalv1connect.JournalServiceImportJournalProcedure: {Of: ofEverything},
}
