package authorize

import (
	"slices"
	"strings"

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

// target describes what the calls of a procedure are about.
type target struct {
	verb authv1.Verb
	// changes: the procedure has side effects.
	changes bool
	// of resolves what a request is about. Exactly one of of, modules, later,
	// nothing and founding is set. A procedure without an entry is about
	// everything, so that every deny rule applies to it.
	of func(m any, c *authz.Call)
	// modules: the request names a module, by digest or by type. It is about
	// each type that the module describes.
	modules bool
	// nothing: the request is about no entity type.
	nothing bool
	// later: what the request is about is known only later, when the service asks
	// Command or Deploy. Until then the caller needs some rule for the verb.
	later bool
	// frequent: the context of the calls is not marked as Decided.
	frequent bool
	// narrows: if the caller may see only a part of a listing, the listing is
	// restricted to that part.
	narrows bool
	// founding: the call is made before there is a cluster that could have
	// roles.
	founding bool
}

// services are the services whose calls have callers.
func services() []protoreflect.ServiceDescriptor {
	return []protoreflect.ServiceDescriptor{
		entityv1.File_hostd_entity_v1_entity_proto.Services().Get(0), modulev1.File_hostd_module_v1_module_proto.Services().Get(0),
		clusterv1.File_hostd_cluster_v1_cluster_proto.Services().Get(0), journalv1.File_hostd_journal_v1_journal_proto.Services().Get(0),
	}
}

// targets returns the targets of all procedures.
func targets() map[string]target {
	out := map[string]target{}
	for _, s := range services() {
		for i := range s.Methods().Len() {
			m := s.Methods().Get(i)
			name := "/" + string(s.FullName()) + "/" + string(m.Name())
			t, resolved := about[name]
			if !resolved {
				t.of = ofEverything
			}
			t.verb = audit.VerbOf(m)
			t.changes = !withoutEffect(m)
			t.frequent = slices.Contains(frequent, name)
			out[name] = t
		}
	}
	return out
}

// withoutEffect reports whether the proto marks a procedure with
// NO_SIDE_EFFECTS.
func withoutEffect(m protoreflect.MethodDescriptor) bool {
	o, ok := m.Options().(*descriptorpb.MethodOptions)
	return ok && o.GetIdempotencyLevel() == descriptorpb.MethodOptions_NO_SIDE_EFFECTS
}

// frequent are the procedures whose calls are not marked.
var frequent = []string{
	entityv1connect.EntityServiceSendProcedure, entityv1connect.EntityServiceSendStreamProcedure, entityv1connect.EntityServiceQueryProcedure,
}

// about says what each procedure is about.
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
	entityv1connect.EntityServiceListTimersProcedure:      {of: ofEntity},
	entityv1connect.EntityServiceListSendsProcedure:       {of: ofEntity},
	entityv1connect.EntityServicePassivateProcedure:       {of: ofEntity},
	entityv1connect.EntityServiceClearFaultsProcedure:     {of: ofEntity},
	entityv1connect.EntityServiceClearTypeFaultsProcedure: {of: ofTypeAndItsEntities},
	entityv1connect.EntityServiceSkipTimerProcedure:       {of: ofEntity},
	entityv1connect.EntityServiceDeleteProcedure:          {of: ofEntity},
	// A dead letter is identified by its place in a shard, which does not reveal
	// its entity here.
	entityv1connect.EntityServiceListDeadLettersProcedure:   {of: ofEverything},
	entityv1connect.EntityServiceRetryDeadLetterProcedure:   {of: ofEverything},
	entityv1connect.EntityServiceDiscardDeadLetterProcedure: {of: ofEverything},

	modulev1connect.ModuleServiceUploadProcedure:        {later: true},
	modulev1connect.ModuleServiceUploadStreamProcedure:  {later: true},
	modulev1connect.ModuleServiceRemoveProcedure:        {later: true},
	modulev1connect.ModuleServiceListProcedure:          {of: ofEverything},
	modulev1connect.ModuleServiceGetProcedure:           {modules: true},
	modulev1connect.ModuleServiceDownloadProcedure:      {modules: true},
	modulev1connect.ModuleServiceQuotasProcedure:        {nothing: true},
	modulev1connect.ModuleServiceActivateProcedure:      {of: ofType},
	modulev1connect.ModuleServiceRollbackProcedure:      {of: ofType},
	modulev1connect.ModuleServiceGetRolloutProcedure:    {modules: true},
	modulev1connect.ModuleServiceChangeRolloutProcedure: {of: ofType},
	modulev1connect.ModuleServiceHistoryProcedure:       {of: ofTypeAndItsEntities},
	modulev1connect.ModuleServiceSetOwnerProcedure:      {of: ofType},
	modulev1connect.ModuleServiceVerifyProcedure:        {of: ofType},
	modulev1connect.ModuleServiceFitProcedure:           {of: ofType},

	clusterv1connect.ClusterServiceInitializeProcedure:    {founding: true},
	clusterv1connect.ClusterServiceGetClusterProcedure:    {nothing: true},
	clusterv1connect.ClusterServiceListShardsProcedure:    {nothing: true},
	clusterv1connect.ClusterServiceWatchClusterProcedure:  {nothing: true},
	clusterv1connect.ClusterServiceWatchShardsProcedure:   {nothing: true},
	clusterv1connect.ClusterServiceWatchStatsProcedure:    {of: ofEverything},
	clusterv1connect.ClusterServiceTailLogsProcedure:      {of: ofEntity},
	clusterv1connect.ClusterServiceProfileNodeProcedure:   {nothing: true},
	clusterv1connect.ClusterServiceProfileGuestsProcedure: {of: ofTypeAndItsEntities},
	clusterv1connect.ClusterServiceMoveShardProcedure:     {nothing: true},
	clusterv1connect.ClusterServiceDrainProcedure:         {nothing: true},
	clusterv1connect.ClusterServiceResumeProcedure:        {nothing: true},
	clusterv1connect.ClusterServiceLeaveProcedure:         {nothing: true},
	clusterv1connect.ClusterServiceDownProcedure:          {nothing: true},
	clusterv1connect.ClusterServiceRebalanceProcedure:     {nothing: true},
	clusterv1connect.ClusterServiceRaiseLevelProcedure:    {nothing: true},
	clusterv1connect.ClusterServiceSetPolicyProcedure:     {nothing: true},
	clusterv1connect.ClusterServicePutSettingProcedure:    {of: ofSetting},
	clusterv1connect.ClusterServiceGetSettingProcedure:    {of: ofSetting},
	clusterv1connect.ClusterServiceListSettingsProcedure:  {of: ofSettings},
	clusterv1connect.ClusterServiceWatchSettingsProcedure: {of: ofSettings},

	clusterv1connect.ClusterServiceListRolesProcedure:         {nothing: true},
	clusterv1connect.ClusterServicePutRoleProcedure:           {nothing: true},
	clusterv1connect.ClusterServiceDeleteRoleProcedure:        {nothing: true},
	clusterv1connect.ClusterServiceListRoleBindingsProcedure:  {nothing: true},
	clusterv1connect.ClusterServicePutRoleBindingProcedure:    {nothing: true},
	clusterv1connect.ClusterServiceDeleteRoleBindingProcedure: {nothing: true},
	clusterv1connect.ClusterServiceListTokensProcedure:        {nothing: true},
	clusterv1connect.ClusterServiceCreateTokenProcedure:       {nothing: true},
	clusterv1connect.ClusterServiceDeleteTokenProcedure:       {nothing: true},
	clusterv1connect.ClusterServiceCanIProcedure:              {nothing: true},

	journalv1connect.JournalServiceExportProcedure: {of: ofEverything},
	journalv1connect.JournalServiceImportProcedure: {of: ofEverything},
}

// calls resolves what a request is about: one call, or one for each type of a
// module. All of them must be allowed.
func (a *Authorizer) calls(t target, m any) []authz.Call {
	c := authz.Call{Verb: t.verb}
	switch {
	case t.modules:
		return a.ofModule(m, c)
	case t.of != nil:
		t.of(m, &c)
	}
	return []authz.Call{c}
}

// ofModule is about each type that the named module describes, and about all of
// their entities if the call reads them. If the request names a type, the module
// is the one that serves it. If this node does not know the module, the request
// is about everything.
func (a *Authorizer) ofModule(m any, c authz.Call) []authz.Call {
	if c.Verb == authv1.Verb_READ {
		c.IDs = authz.Beginning
	}
	c.Types = authz.One
	var out []authz.Call
	if r, ok := m.(interface{ GetEntityType() string }); ok && r.GetEntityType() != "" {
		c.Type = r.GetEntityType()
		out = append(out, c)
		if a.opts.ServedWith != nil {
			for _, t := range a.opts.ServedWith(r.GetEntityType()) {
				if c.Type = t; t != r.GetEntityType() {
					out = append(out, c)
				}
			}
		}
		return out
	}
	if r, ok := m.(interface{ GetDigest() string }); ok && a.opts.TypesOf != nil {
		for _, t := range a.opts.TypesOf(r.GetDigest()) {
			c.Type = t
			out = append(out, c)
		}
	}
	if len(out) == 0 {
		c.Types = authz.Beginning
		out = append(out, c)
	}
	return out
}

// ofSetting is about the entity type whose setting the key names, or about no
// type if the key is of a different kind.
func ofSetting(m any, c *authz.Call) {
	r, ok := m.(interface{ GetKey() string })
	if !ok {
		ofSettingsOf("", c)
		return
	}
	rest, ofType := strings.CutPrefix(r.GetKey(), typeSettings)
	if !ofType {
		return
	}
	t, _, _ := strings.Cut(rest, ".")
	ofSettingsOf(typeSettings+t+".", c)
}

// ofSettings is about the entity types whose settings have keys with the
// requested prefix.
func ofSettings(m any, c *authz.Call) {
	r, ok := m.(interface{ GetKeyPrefix() string })
	if !ok {
		ofSettingsOf("", c)
		return
	}
	ofSettingsOf(r.GetKeyPrefix(), c)
}

// typeSettings is the prefix of the keys of settings of entity types. The type
// and a dot follow.
const typeSettings = "entity."

func ofSettingsOf(prefix string, c *authz.Call) {
	rest, ofTypes := strings.CutPrefix(prefix, typeSettings)
	switch t, _, whole := strings.Cut(rest, "."); {
	case ofTypes && whole:
		c.Types, c.Type = authz.One, t
	case ofTypes:
		c.Types, c.Type = authz.Beginning, t
	case strings.HasPrefix(typeSettings, prefix):
		c.Types = authz.Beginning
	default:
		return
	}
	if c.Verb == authv1.Verb_READ {
		c.IDs = authz.Beginning
	}
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

// ofEntity is about the entity that a request names, about all entities of a
// type if the request names only the type, and about everything if it names
// neither.
func ofEntity(m any, c *authz.Call) {
	ofTypeAndItsEntities(m, c)
	if r, ok := m.(interface{ GetEntityId() string }); ok && r.GetEntityId() != "" && c.Types == authz.One {
		c.IDs, c.ID = authz.One, r.GetEntityId()
	}
}

// ofType is about an entity type but none of its entities.
func ofType(m any, c *authz.Call) {
	ofTypeAndItsEntities(m, c)
	c.IDs = authz.Nothing
}

// ofTypeAndItsEntities is about all entities of the type that a request names,
// or about everything if it names none.
func ofTypeAndItsEntities(m any, c *authz.Call) {
	ofEverything(m, c)
	if r, ok := m.(interface{ GetEntityType() string }); ok && r.GetEntityType() != "" {
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
