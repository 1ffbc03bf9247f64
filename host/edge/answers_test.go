package edge_test

import (
	"maps"
	"slices"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"

	_ "github.com/hostd/hostd/api/gen/hostd/peer/v1" // registers the peer procedures, which the test also checks
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/sharding/access"
	"github.com/hostd/hostd/sharding/meta"
)

// many is the limit of a repeated field of a response, and the reason for
// this limit. The limit is the maximum number of elements, or the maximum
// number of bytes of all elements together.
type many struct {
	elements, bytes int
	why             string
}

// asJSON is how many times larger a JSON value can be as a message than as
// text: a digit and a comma, which are two bytes of text, take 11 bytes of a
// message.
const asJSON = 6

// repeated has the limits of all repeated fields that a response may have,
// except the fields that contain a page of a listing.
var repeated = map[protoreflect.FullName]many{
	"hostd.cluster.v1.CheckAccessResponse.groups":                  {bytes: 16 << 10, why: "a credential is in a header of 16 KiB"},
	"hostd.cluster.v1.CheckAccessResponse.roles":                   {bytes: access.MaxBytes, why: "access.MaxBytes of all bindings"},
	"hostd.cluster.v1.GetClusterResponse.members":                  {elements: meta.MaxMembers, why: "meta.MaxMembers"},
	"hostd.cluster.v1.GetClusterResponse.shard_keys":               {elements: meta.MaxActivations, why: "one for each type that is served, meta.MaxActivations"},
	"hostd.cluster.v1.GetClusterResponse.pending_operations":       {elements: 2 + meta.MaxMembers + meta.MaxShards, why: "one of the policy, of each node and of each shard, and a rebalancing"},
	"hostd.cluster.v1.InitializeClusterResponse.unreachable_seeds": {elements: meta.MaxMembers, why: "seeds of the configuration"},
	"hostd.cluster.v1.Member.roles":                                {elements: meta.MaxRoles, why: "meta.MaxRoles"},
	"hostd.cluster.v1.ProfileGuestsResponse.functions":             {bytes: 512 << 10, why: "parts of 256 KiB"},
	"hostd.cluster.v1.ProfileGuestsResponse.missing_nodes":         {elements: meta.MaxMembers, why: "nodes"},
	"hostd.cluster.v1.ProfileGuestsResponse.stacks":                {bytes: 512 << 10, why: "parts of 256 KiB"},
	"hostd.cluster.v1.FinalizeUpgradeResponse.nodes":               {elements: meta.MaxMembers, why: "nodes"},
	"hostd.cluster.v1.Role.rules":                                  {bytes: access.MaxBytes - 16<<10, why: "access.MaxBytes of all roles, which counts each string with 13 bytes more than it needs"},
	"hostd.cluster.v1.RoleBinding.roles":                           {elements: access.MaxBindingRoles, why: "access.MaxBindingRoles"},
	"hostd.cluster.v1.Shard.learners":                              {elements: meta.MaxReplicas, why: "meta.MaxReplicas"},
	"hostd.cluster.v1.Shard.stopped":                               {elements: meta.MaxReplicas, why: "meta.MaxReplicas"},
	"hostd.cluster.v1.Shard.lost_voters":                           {elements: meta.MaxReplicas, why: "meta.MaxReplicas"},
	"hostd.cluster.v1.Shard.voters":                                {elements: meta.MaxReplicas, why: "meta.MaxReplicas"},
	"hostd.cluster.v1.TailLogsResponse.lines":                      {elements: 256, bytes: 128 << 10, why: "a follower gets 256 lines and 64 KiB at once"},
	"hostd.cluster.v1.TailLogsResponse.missing_nodes":              {elements: meta.MaxMembers, why: "nodes"},
	"hostd.cluster.v1.Token.roles":                                 {elements: access.MaxBindingRoles, why: "access.MaxBindingRoles"},
	"hostd.cluster.v1.WatchClusterResponse.members":                {elements: meta.MaxMembers, why: "meta.MaxMembers"},
	"hostd.cluster.v1.WatchClusterResponse.pending_operations":     {elements: 2 + meta.MaxMembers + meta.MaxShards, why: "as of GetCluster"},
	"hostd.cluster.v1.WatchShardsResponse.shards":                  {bytes: page.Bytes + 64<<10, why: "messages end as pages do, TestFirstMessagesArePages"},
	"hostd.cluster.v1.WatchStatsResponse.left_nodes":               {elements: meta.MaxMembers, why: "nodes"},
	"hostd.cluster.v1.WatchStatsResponse.missing_nodes":            {elements: meta.MaxMembers, why: "nodes"},
	"hostd.cluster.v1.WatchStatsResponse.types":                    {elements: 200, why: "the 200 busiest"},
	"hostd.entity.v1.GetEntityResponse.operator_actions":           {elements: 16, why: "the newest 16"},
	"hostd.entity.v1.GetEntityResponse.timers":                     {elements: 256, why: "the first 256"},
	"hostd.entity.v1.ListHotEntitiesResponse.entities":             {elements: 1000, why: "limit of the request"},
	"hostd.entity.v1.ListHotEntitiesResponse.missing_nodes":        {elements: meta.MaxMembers, why: "nodes"},
	"hostd.entity.v1.ListTimersResponse.missing_nodes":             {elements: meta.MaxMembers, why: "nodes"},
	"hostd.entity.v1.Principal.groups":                             {bytes: 4 << 10, why: "abi.MaxPrincipalBytes"},
	"hostd.entity.v1.ReadEventsResponse.tags":                      {bytes: 256 << 10, why: "events of a command have 256 KiB together"},
	"hostd.entity.v1.ReadRecordsResponse.Record.events":            {bytes: 64 << 10, why: "128 a command; their payloads are counted with the reply"},
	"hostd.entity.v1.ReadRecordsResponse.Record.messages":          {bytes: 64 << 10, why: "128 a command; their payloads are counted with the reply"},
	"hostd.entity.v1.ReadRecordsResponse.Record.timers":            {bytes: 64 << 10, why: "128 a command; their payloads are counted with the reply"},
	"hostd.entity.v1.SendCommandStreamResponse.responses":          {bytes: 256<<10 + asJSON*256<<10, why: "messages are cut at 256 KiB, a reply above it travels alone"},
	"hostd.entity.v1.SubscribeEventsResponse.tags":                 {bytes: 256 << 10, why: "events of a command have 256 KiB together"},
	"hostd.journal.v1.ImportJournalResponse.paused_rollouts":       {elements: meta.MaxActivations, why: "types that are served"},
	"hostd.journal.v1.ImportJournalResponse.omitted":               {elements: 2002, why: "1,000 lines of each kind and how many more"},
	"hostd.module.v1.ActivateModuleResponse.warnings":              {elements: 2 * meta.MaxTypesPerModule, why: "of each type of a module"},
	"hostd.module.v1.CheckCompatibilityResponse.differences":       {elements: 100, why: "modules.MaxReplayFaults"},
	"hostd.module.v1.CheckCompatibilityResponse.faults":            {elements: 100, why: "modules.MaxReplayFaults"},
	"hostd.module.v1.CheckCompatibilityResponse.missing":           {elements: 1024, why: "modules.MaxMissingEvents"},
	"hostd.module.v1.CheckCompatibilityResponse.snapshot_digests":  {elements: meta.MaxModules, why: "meta.MaxModules"},
	"hostd.module.v1.GetActivationHistoryResponse.changes":         {elements: meta.MaxActivationChanges, why: "meta.MaxActivationChanges"},
	"hostd.module.v1.Module.active_for":                            {elements: meta.MaxTypesPerModule, why: "meta.MaxTypesPerModule"},
	"hostd.module.v1.Module.activations":                           {elements: meta.MaxTypesPerModule, why: "meta.MaxTypesPerModule"},
	"hostd.module.v1.Module.entity_types":                          {elements: meta.MaxTypesPerModule, why: "meta.MaxTypesPerModule"},
	"hostd.module.v1.Module.parts":                                 {elements: 3 * meta.MaxTypesPerModule, why: "meta.MaxTypesPerModule"},
	"hostd.module.v1.Module.verifications":                         {elements: meta.MaxTypesPerModule, why: "meta.MaxTypesPerModule"},
	"hostd.module.v1.RollbackModuleResponse.entity_types":          {elements: meta.MaxTypesPerModule, why: "meta.MaxTypesPerModule"},
	"hostd.module.v1.RollbackModuleResponse.warnings":              {elements: 4 * meta.MaxTypesPerModule, why: "of each type of a module"},
	"hostd.module.v1.Rollout.entity_types":                         {elements: meta.MaxTypesPerModule, why: "meta.MaxTypesPerModule"},
	"hostd.module.v1.Rollout.remaining_entity_ids":                 {elements: meta.MaxRolloutStay, why: "meta.MaxRolloutStay"},
	"hostd.module.v1.Rollout.steps":                                {elements: meta.MaxRolloutSteps, why: "meta.MaxRolloutSteps"},
	"hostd.module.v1.Shadow.differences":                           {elements: 6, why: "kinds of differences"},
	"hostd.module.v1.Shadow.examples":                              {elements: 20, why: "20 of all nodes"},
	"hostd.module.v1.ShadowExample.kinds":                          {elements: 6, why: "kinds of differences"},
	"hostd.module.v1.TypePatterns.patterns":                        {elements: 64, why: "abi.MaxTypePatterns"},
	"hostd.module.v1.UploadModuleResponse.entity_types":            {elements: meta.MaxTypesPerModule, why: "meta.MaxTypesPerModule"},
	"hostd.module.v1.UploadModuleResponse.warnings":                {elements: 2 * meta.MaxTypesPerModule, why: "of each type of a module"},
	"hostd.module.v1.UploadModuleStreamResponse.entity_types":      {elements: meta.MaxTypesPerModule, why: "meta.MaxTypesPerModule"},
	"hostd.module.v1.UploadModuleStreamResponse.warnings":          {elements: 2 * meta.MaxTypesPerModule, why: "of each type of a module"},
	"hostd.module.v1.VerifyModuleResponse.differences":             {elements: 100, bytes: 100 * (asJSON*4<<10 + 4<<10), why: "a hundred of all are reported"},
	"hostd.peer.v1.ConfirmResponse.indexes":                        {elements: meta.MaxShards, why: "meta.MaxShards"},
	"hostd.peer.v1.CountsResponse.types":                           {elements: meta.MaxTypesPerModule, why: "one for each type that was asked for, those of a module"},
	"hostd.peer.v1.CutResponse.cuts":                               {elements: meta.MaxShards, why: "meta.MaxShards"},
	"hostd.peer.v1.ForwardResponse.items":                          {bytes: 1 << 20, why: "messages are cut, host/forward"},
	"hostd.peer.v1.ImportStateResponse.states":                     {elements: meta.MaxShards, why: "meta.MaxShards"},
	"hostd.peer.v1.JoinResponse.meta_first":                        {elements: meta.MaxMetaReplicas, why: "meta.MaxMetaReplicas"},
	"hostd.peer.v1.JoinResponse.meta_replicas":                     {elements: meta.MaxMetaReplicas, why: "meta.MaxMetaReplicas"},
	"hostd.peer.v1.Member.roles":                                   {elements: meta.MaxRoles, why: "meta.MaxRoles"},
	"hostd.peer.v1.ModuleCounts.took":                              {elements: 256, why: "canary.Buckets"},
	"hostd.peer.v1.NodeState.stopped":                              {elements: 64, why: "those of all nodes are the replicas of shards"},
	"hostd.peer.v1.ProbeResponse.left":                             {elements: meta.MaxLeft, why: "meta.MaxLeft"},
	"hostd.peer.v1.ProbeResponse.downed":                           {elements: meta.MaxDownedStarts, why: "meta.MaxDownedStarts"},
	"hostd.peer.v1.ProbeResponse.members":                          {elements: meta.MaxMembers, why: "meta.MaxMembers"},
	"hostd.peer.v1.ReachResponse.unreached":                        {elements: meta.MaxMembers, why: "nodes"},
	"hostd.peer.v1.ReportResponse.nodes":                           {elements: meta.MaxMembers, why: "nodes"},
	"hostd.peer.v1.ReportResponse.pending":                         {elements: 2 + meta.MaxMembers + meta.MaxShards, why: "as of GetCluster"},
	"hostd.peer.v1.ReportResponse.shards":                          {elements: meta.MaxShards, bytes: meta.MaxShards * 256, why: "meta.MaxShards; the replicas of a shard are 9 numbers, which are small"},
	"hostd.peer.v1.ReportResponse.transfers":                       {elements: 64, why: "coordinator.MaxMovesInFlight"},
	"hostd.peer.v1.ShadowCounts.by":                                {elements: 6, why: "kinds of differences"},
	"hostd.peer.v1.ShadowCounts.examples":                          {elements: 20, why: "shadow.maxExamples"},
	"hostd.peer.v1.SizesResponse.shards":                           {elements: meta.MaxShards, why: "meta.MaxShards"},
	"hostd.peer.v1.VouchResponse.voters":                           {elements: meta.MaxMetaReplicas, why: "meta.MaxMetaReplicas"},
	"hostd.workflow.v1.Run.waits_for":                              {elements: journal.MaxRunWaits, why: "journal.MaxRunWaits"},
}

// texts has the maximum length in bytes of the texts in responses, by field
// name. The limit of all other texts is 512.
var texts = map[protoreflect.Name]int{
	"entity_type": sharding.MaxEntityTypeBytes, "source_type": sharding.MaxEntityTypeBytes, "entity_types": sharding.MaxEntityTypeBytes, "active_for": sharding.MaxEntityTypeBytes,
	"paused_rollouts": sharding.MaxEntityTypeBytes, "patterns": sharding.MaxEntityTypeBytes + 1, "group": sharding.MaxEntityTypeBytes, "until": sharding.MaxKeyUntilBytes,
	"entity_id": sharding.MaxEntityIDBytes, "source_id": sharding.MaxEntityIDBytes, "remaining_entity_ids": sharding.MaxEntityIDBytes,
	// Node ids, at most 64 bytes each.
	"node_id": 64, "leader": 64, "voters": 64, "lost_voters": 64, "learners": 64, "coordinator": 64, "missing_nodes": 64, "left_nodes": 64, "from": 64, "to": 64,
	"command": 255, "timer": 255, "event_type": 255, "on_reply": 255, "on_reject": 255, "name": 255, "prefix": 255, "command_id": 128, "zone": 128, "version": 128, "status": 16,
	"schedule": 255, "time_zone": 255, "missed": 8, "kind": 16, "roles": access.MaxNameBytes, "token_name": access.MaxTokenNameBytes,
	"digest": 64, "module_digest": 64, "older_digest": 64, "snapshot_digests": 64, "owner": access.MaxSubjectBytes, "changed_by": meta.MaxForcedByBytes, "requested_by": meta.MaxForcedByBytes,
	"value": meta.MaxSettingValueBytes, "reason": 256, "next_page_token": 1024, "cursor": 64 << 10, "warnings": 2 << 10, "last_error": 5 << 10, "text": 5 << 10, "note": 1024,
	"omitted": access.MaxSubjectBytes + access.MaxNameBytes + 5,
	// Bytes: payloads.
	"data": 256 << 10, "result": 512 << 10, "chunk": 256 << 10, "part": 256 << 10, "header": 64 << 10, "frames": 1 << 20, "answer": 64 << 10, "payload": 256 << 10, "wasm": 64 << 10,
	"import": 16,
}

// payloads has the fields whose limit differs from the limit that texts has
// for their name.
var payloads = map[protoreflect.FullName]int{
	"hostd.entity.v1.ListMessagesResponse.PendingMessage.data":   4 << 10,
	"hostd.entity.v1.DeadLetter.data":                            64 << 10,
	"hostd.entity.v1.GetStateResponse.data":                      1 << 20,
	"hostd.entity.v1.GetStateResponse.json":                      page.MaxAnswer - 4<<10,
	"hostd.entity.v1.ReadRecordsResponse.Record.data":            128 << 10,
	"hostd.entity.v1.ReadRecordsResponse.Record.json":            asJSON * 128 << 10,
	"hostd.entity.v1.ReadRecordsResponse.Event.data":             64 << 10,
	"hostd.entity.v1.ReadRecordsResponse.Message.data":           64 << 10,
	"hostd.entity.v1.ReadEventsResponse.json":                    asJSON * 64 << 10,
	"hostd.entity.v1.SubscribeEventsResponse.json":               asJSON * 64 << 10,
	"hostd.entity.v1.QueryEntityResponse.json":                   asJSON * 256 << 10,
	"hostd.entity.v1.SendCommandResponse.json":                   asJSON * 256 << 10,
	"hostd.entity.v1.ReadRecordsResponse.Event.json":             asJSON * 64 << 10,
	"hostd.module.v1.GetModuleResponse.manifest":                 asJSON * 256 << 10,
	"hostd.module.v1.VerifyModuleResponse.PatchOperation.value":  asJSON * 4 << 10,
	"hostd.workflow.v1.Run.result":                               asJSON * 64 << 10,
	"hostd.workflow.v1.Run.message":                              64 << 10,
	"hostd.workflow.v1.QueryWorkflowResponse.reply":              asJSON * 256 << 10,
	"hostd.workflow.v1.GetWorkflowHistoryResponse.Event.payload": asJSON * 64 << 10,
}

// measure computes the maximum size of responses.
type measure struct {
	t    *testing.T
	used map[protoreflect.FullName]bool
}

// message returns the maximum size of a message in bytes.
func (m *measure) message(d protoreflect.MessageDescriptor) (sum int) {
	switch d.FullName() {
	case "google.protobuf.Timestamp", "google.protobuf.Duration":
		return 24
	case "google.protobuf.Any":
		return 8 << 10
	}
	oneofs := map[protoreflect.FullName]int{}
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		size := m.field(f)
		if one := f.ContainingOneof(); one != nil {
			oneofs[one.FullName()] = max(oneofs[one.FullName()], size)
		} else {
			sum += size
		}
	}
	for _, size := range oneofs {
		sum += size
	}
	return sum
}

func (m *measure) field(f protoreflect.FieldDescriptor) int {
	if !f.IsList() {
		return m.element(f)
	}
	b, ok := repeated[f.FullName()]
	m.used[f.FullName()] = true
	if !ok {
		m.t.Errorf("nothing says what bounds %s: page it, or bound it", f.FullName())
		return 0
	}
	if b.bytes > 0 {
		return b.bytes
	}
	return b.elements * m.element(f)
}

// element returns the maximum size of one element of a field, with its tag and
// length.
func (m *measure) element(f protoreflect.FieldDescriptor) int {
	tag, size := protowire.SizeTag(f.Number()), 0
	if known, ok := payloads[f.FullName()]; ok {
		return tag + protowire.SizeBytes(known)
	}
	switch f.Kind() {
	case protoreflect.StringKind, protoreflect.BytesKind:
		if size = texts[f.Name()]; size == 0 {
			size = 512
		}
	case protoreflect.MessageKind:
		size = m.message(f.Message())
	case protoreflect.BoolKind, protoreflect.EnumKind:
		return tag + 1
	case protoreflect.DoubleKind, protoreflect.Fixed64Kind:
		return tag + 8
	case protoreflect.Uint32Kind:
		return tag + 5
	default:
		return tag + protowire.SizeVarint(1<<64-1)
	}
	return tag + protowire.SizeBytes(size)
}

// TestAnswersHaveABound: the largest response of every procedure, and the
// largest message of every stream, is small enough for a gRPC client. Every
// repeated field of a response either has a limit in the table, with the
// reason, or its call returns pages. A page ends with the item that reaches
// page.Bytes, so no item may be larger than page.Bytes.
func TestAnswersHaveABound(t *testing.T) {
	m := &measure{t: t, used: map[protoreflect.FullName]bool{}}
	paged := 0
	for name, method := range procedures() {
		out := method.Output()
		next := out.Fields().ByName("next_page_token")
		if next == nil {
			if size := m.message(out); size > page.MaxAnswer {
				t.Errorf("%s: an answer may have %d bytes, more than %d", name, size, page.MaxAnswer)
			}
			continue
		}
		paged++
		if in := method.Input().Fields(); in.ByName("page_size") == nil || in.ByName("page_token") == nil {
			t.Errorf("%s: its answer has a token, and its request none", name)
		}
		rest, items := 0, 0
		for i := range out.Fields().Len() {
			f := out.Fields().Get(i)
			if _, bounded := repeated[f.FullName()]; f.IsList() && !bounded {
				if items++; m.element(f) > page.Bytes {
					t.Errorf("%s: an item may have %d bytes, more than %d", name, m.element(f), page.Bytes)
				}
				rest += page.Bytes + m.element(f)
				continue
			}
			rest += m.field(f)
		}
		if items != 1 || rest > page.MaxAnswer {
			t.Errorf("%s: %d lists, at most %d bytes", name, items, rest)
		}
	}
	if paged < 11 {
		t.Errorf("%d procedures have pages", paged)
	}
	for _, name := range slices.Sorted(maps.Keys(repeated)) {
		if !m.used[name] {
			t.Errorf("%s is in no answer", name)
		}
	}
}

// procedures returns the procedures of all services, by name.
func procedures() map[string]protoreflect.MethodDescriptor {
	out := map[string]protoreflect.MethodDescriptor{}
	protoregistry.GlobalFiles.RangeFiles(func(f protoreflect.FileDescriptor) bool {
		for i := range f.Services().Len() {
			s := f.Services().Get(i)
			for j := range s.Methods().Len() {
				if f.Package().Parent().Parent() == "hostd" {
					out["/"+string(s.FullName())+"/"+string(s.Methods().Get(j).Name())] = s.Methods().Get(j)
				}
			}
		}
		return true
	})
	return out
}
