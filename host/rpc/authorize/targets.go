package authorize

import (
	"slices"

	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"

	authv1 "github.com/hostd/hostd/api/gen/hostd/auth/v1"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/api/gen/hostd/cluster/v1/clusterv1connect"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	"github.com/hostd/hostd/api/gen/hostd/entity/v1/entityv1connect"
	journalv1 "github.com/hostd/hostd/api/gen/hostd/journal/v1"
	"github.com/hostd/hostd/api/gen/hostd/journal/v1/journalv1connect"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/api/gen/hostd/module/v1/modulev1connect"
	"github.com/hostd/hostd/host/audit"
	"github.com/hostd/hostd/host/authz"
)

// target is what a procedure is about.
type target struct {
	verb authv1.Verb
	// changes: it is not without effect.
	changes bool
	// of fills in what a request is about; nil is nothing.
	of func(m any, c *authz.Call)
	// later: what it is about is known later, and asked for by Check. The caller
	// needs a rule for some of it.
	later bool
	// frequent calls have no mark in their context.
	frequent bool
	// narrows: who may not ask for all of it is answered as far as it may.
	narrows bool
	// founding is made before there is a cluster that could have roles.
	founding bool
}

// services are those whose calls have callers.
func services() []protoreflect.ServiceDescriptor {
	return []protoreflect.ServiceDescriptor{
		entityv1.File_hostd_entity_v1_entity_proto.Services().Get(0), modulev1.File_hostd_module_v1_module_proto.Services().Get(0),
		clusterv1.File_hostd_cluster_v1_cluster_proto.Services().Get(0), journalv1.File_hostd_journal_v1_journal_proto.Services().Get(0),
	}
}

// targets are those of all procedures.
func targets() map[string]target {
	out := map[string]target{}
	for _, s := range services() {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			name := "/" + string(s.FullName()) + "/" + string(m.Name())
			t := about[name]
			t.verb = audit.VerbOf(m)
			t.changes = !withoutEffect(m)
			t.frequent = slices.Contains(frequent, name)
			out[name] = t
		}
	}
	return out
}

// withoutEffect says whether the proto says so of a procedure.
func withoutEffect(m protoreflect.MethodDescriptor) bool {
	o, ok := m.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// frequent are those that have no mark.
var frequent = []string{
	entityv1connect.EntityServiceSendProcedure, entityv1connect.EntityServiceSendStreamProcedure, entityv1connect.EntityServiceQueryProcedure,
}

// about has what the procedures are about that are about entity types.
var about = map[string]target{
	entityv1connect.EntityServiceSendProcedure:            {of: ofSend},
	entityv1connect.EntityServiceSendStreamProcedure:      {later: true},
	entityv1connect.EntityServiceQueryProcedure:           {of: ofQuery},
	entityv1connect.EntityServiceReadEventsProcedure:      {of: ofEntity},
	entityv1connect.EntityServiceReadRecordsProcedure:     {of: ofEntity},
	entityv1connect.EntityServiceSubscribeProcedure:       {of: ofTypeAndItsEntities},
	entityv1connect.EntityServiceGetEntityProcedure:       {of: ofEntity},
	entityv1connect.EntityServiceGetStateProcedure:        {of: ofEntity},
	entityv1connect.EntityServiceListEntitiesProcedure:    {of: ofListing, narrows: true},
	entityv1connect.EntityServiceHotEntitiesProcedure:     {of: ofEverything},
	entityv1connect.EntityServiceListTimersProcedure:      {of: ofWhatIsNamed},
	entityv1connect.EntityServiceListSendsProcedure:       {of: ofWhatIsNamed},
	entityv1connect.EntityServicePassivateProcedure:       {of: ofEntity},
	entityv1connect.EntityServiceClearFaultsProcedure:     {of: ofEntity},
	entityv1connect.EntityServiceClearTypeFaultsProcedure: {of: ofTypeAndItsEntities},
	entityv1connect.EntityServiceSkipTimerProcedure:       {of: ofEntity},
	entityv1connect.EntityServiceDeleteProcedure:          {of: ofEntity},
	// A dead letter is named by its place: whose it is nobody knows here.
	entityv1connect.EntityServiceListDeadLettersProcedure:   {of: ofEverything},
	entityv1connect.EntityServiceRetryDeadLetterProcedure:   {of: ofEverything},
	entityv1connect.EntityServiceDiscardDeadLetterProcedure: {of: ofEverything},

	modulev1connect.ModuleServiceUploadProcedure:        {later: true},
	modulev1connect.ModuleServiceUploadStreamProcedure:  {later: true},
	modulev1connect.ModuleServiceRemoveProcedure:        {later: true},
	modulev1connect.ModuleServiceGetProcedure:           {of: ofType},
	modulev1connect.ModuleServiceActivateProcedure:      {of: ofType},
	modulev1connect.ModuleServiceRollbackProcedure:      {of: ofType},
	modulev1connect.ModuleServiceGetRolloutProcedure:    {of: ofType},
	modulev1connect.ModuleServiceChangeRolloutProcedure: {of: ofType},
	modulev1connect.ModuleServiceHistoryProcedure:       {of: ofType},
	modulev1connect.ModuleServiceSetOwnerProcedure:      {of: ofType},
	modulev1connect.ModuleServiceVerifyProcedure:        {of: ofTypeAndItsEntities},
	modulev1connect.ModuleServiceFitProcedure:           {of: ofTypeAndItsEntities},

	clusterv1connect.ClusterServiceInitializeProcedure:    {founding: true},
	clusterv1connect.ClusterServiceWatchStatsProcedure:    {of: ofEverything},
	clusterv1connect.ClusterServiceTailLogsProcedure:      {of: ofTypeOrEntity},
	clusterv1connect.ClusterServiceProfileGuestsProcedure: {of: ofTypeAndItsEntities},

	journalv1connect.JournalServiceExportProcedure: {of: ofEverything},
	journalv1connect.JournalServiceImportProcedure: {of: ofEverything},
}

func ofSend(m any, c *authz.Call) {
	ofEntity(m, c)
	if r, ok := m.(*entityv1.SendRequest); ok {
		c.Command = r.GetCommand()
	}
}

func ofQuery(m any, c *authz.Call) {
	ofEntity(m, c)
	if r, ok := m.(*entityv1.QueryRequest); ok {
		c.Command = r.GetQuery()
	}
}

func ofEntity(m any, c *authz.Call) {
	ofEverything(m, c)
	if r, ok := m.(interface {
		GetEntityType() string
		GetEntityId() string
	}); ok {
		c.Types, c.Type, c.IDs, c.ID = authz.One, r.GetEntityType(), authz.One, r.GetEntityId()
	}
}

// ofType is about a type and none of its entities; about none where the request
// names none.
func ofType(m any, c *authz.Call) {
	if r, ok := m.(interface{ GetEntityType() string }); ok && r.GetEntityType() != "" {
		c.Types, c.Type = authz.One, r.GetEntityType()
	}
}

// ofTypeOrEntity is about one entity, or about all of a type where the request
// names none.
func ofTypeOrEntity(m any, c *authz.Call) {
	if r, ok := m.(interface{ GetEntityId() string }); ok && r.GetEntityId() == "" {
		ofTypeAndItsEntities(m, c)
		return
	}
	ofEntity(m, c)
}

// ofWhatIsNamed is about one entity, about all of a type, or about everything.
func ofWhatIsNamed(m any, c *authz.Call) {
	id, ok := m.(interface{ GetEntityId() string })
	named, typed := m.(interface{ GetEntityType() string })
	switch {
	case !typed || named.GetEntityType() == "":
		ofEverything(m, c)
	case ok && id.GetEntityId() != "":
		ofEntity(m, c)
	default:
		ofTypeAndItsEntities(m, c)
	}
}

func ofTypeAndItsEntities(m any, c *authz.Call) {
	ofEverything(m, c)
	if r, ok := m.(interface{ GetEntityType() string }); ok {
		c.Types, c.Type = authz.One, r.GetEntityType()
	}
}

func ofListing(m any, c *authz.Call) {
	ofTypeAndItsEntities(m, c)
	if r, ok := m.(*entityv1.ListEntitiesRequest); ok {
		c.ID = r.GetIdPrefix()
	}
}

func ofEverything(_ any, c *authz.Call) { c.Types, c.IDs = authz.Beginning, authz.Beginning }
