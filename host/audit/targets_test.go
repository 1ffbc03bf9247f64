package audit

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/timestamppb"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	entityv1 "github.com/hostd/hostd/api/gen/hostd/entity/v1"
	journalv1 "github.com/hostd/hostd/api/gen/hostd/journal/v1"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/host/procedure"
)

// untold are the fields of changes that no line contains, with the reason.
var untold = map[protoreflect.Name]string{
	"entity_type": "has a member of its own", "entity_id": "has a member of its own", "command_id": "has a member of its own",
	"wasm": "code", "signature": "code", "chunk": "data of entities", "token_sha256": "a credential", "value": "data",
	"first_attempt_age": "is about a retry", "page_size": "is about a list", "page_token": "is about a list",
	"shard_time": "bounds a comparison", "presence_only": "asked by nodes", "min_activation_revision": "asked by nodes", "truncated_only": "asked by nodes", "include_snapshots": "asked by nodes", "paced": "asked by nodes",
	"initial_share": "asked by nodes", "initial_prefix": "asked by nodes", "current_share": "asked by nodes", "current_prefix": "asked by nodes",
}

// TestChangeLineContainsEveryField: the line of a change contains every field
// of the request, except data, code and credentials.
func TestChangeLineContainsEveryField(t *testing.T) {
	for _, file := range []protoreflect.FileDescriptor{
		entityv1.File_hostd_entity_v1_entity_proto, modulev1.File_hostd_module_v1_module_proto, clusterv1.File_hostd_cluster_v1_cluster_proto, journalv1.File_hostd_journal_v1_journal_proto,
	} {
		methods := file.Services().Get(0).Methods()
		for i := range methods.Len() {
			m := methods.Get(i)
			for j := range m.Input().Fields().Len() {
				name := m.Input().Fields().Get(j).Name()
				told, why := slices.Contains(targets, name), untold[name]
				if changes(procedure.VerbOf(m)) && told == (why != "") {
					t.Errorf("%s of %s: in a line %v, left out for %q", name, m.Input().Name(), told, why)
				}
			}
		}
	}
}

// TestChangeLinesAreUnambiguous: a line contains all fields of a change, however
// large the caller makes the request, and cannot be mistaken for another
// change.
func TestChangeLinesAreUnambiguous(t *testing.T) {
	var roles []string
	for i := range 15 {
		roles = append(roles, fmt.Sprintf("%02d%s", i, strings.Repeat("r", 62)))
	}
	roles = append(roles, "admin")
	for want, m := range map[string]proto.Message{
		"roles=" + strings.Join(roles, ",") + " subject=jwt:eve":    &clusterv1.PutRoleBindingRequest{Subject: "jwt:eve", Roles: roles},
		`roles=viewer subject="jwt:eve roles=none subject=jwt:al"`:  &clusterv1.PutRoleBindingRequest{Subject: "jwt:eve roles=none subject=jwt:al", Roles: []string{"viewer"}},
		`subject="jwt:a\u202eb"`:                                    &clusterv1.DeleteRoleBindingRequest{Subject: "jwt:a\u202eb"},
		`roles="a,b",c token_name=ci expires_at.seconds=1700000000`: &clusterv1.CreateTokenRequest{TokenName: "ci", Roles: []string{"a,b", "c"}, ExpiresAt: timestamppb.New(time.Unix(1_700_000_000, 0)), TokenSha256: []byte("hash")},
		"owner=token:bo":                 &modulev1.SetOwnerRequest{EntityType: "order", Owner: "token:bo"},
		"action=ACTION_ABORT force=true": &modulev1.ChangeRolloutRequest{EntityType: "order", Action: modulev1.ChangeRolloutRequest_ACTION_ABORT, Force: true},
		"accept_differences=true digest=ab limits.max_events=3 rollout.prefix=a/ rollout.share=7": &modulev1.ActivateModuleRequest{EntityType: "order", Digest: "ab", AcceptDifferences: true, Limits: &modulev1.Limits{MaxEvents: 3}, Rollout: &modulev1.RolloutPlan{Share: 7, Prefix: "a/"}},
		"role_name=r rules.1.effect=allow rules.1.verbs=read,query rules.2.effect=deny rules.2.types=a*": &clusterv1.PutRoleRequest{RoleName: "r", Rules: []*clusterv1.RoleRule{
			{Effect: "allow", Verbs: []string{"read", "query"}}, {Effect: "deny", Types: []string{"a*"}}}},
		"with_security_roles=true": &journalv1.ImportJournalRequest{Chunk: []byte("secret"), WithSecurityRoles: true},
		"key=greeting":             &clusterv1.PutSettingRequest{Key: "greeting", Value: "secret"},
	} {
		var e Entry
		e.about(m)
		if e.cut(); e.Target != want {
			t.Errorf("%T:\n%s\nwant\n%s", m, e.Target, want)
		}
	}
	// A rejected request may have any size.
	long := Entry{Principal: Principal{Name: strings.Repeat("<", 1<<20)}, Address: strings.Repeat("<", 1<<20), Method: strings.Repeat("<", 1<<20), Type: strings.Repeat("<", 1<<20), ID: strings.Repeat("<", 1<<20), CommandID: strings.Repeat("<", 1<<20), Result: strings.Repeat("<", 1<<20), Reason: strings.Repeat("<", 1<<20)}
	long.Target = pairs(&clusterv1.PutRoleBindingRequest{Subject: strings.Repeat("<", 1<<20), Roles: slices.Repeat([]string{"<"}, 1<<20)}, targets)
	long.cut()
	text, err := (&line{Entry: long}).render()
	if err != nil || len(text) > maxLine {
		t.Errorf("a line has %d bytes, %v", len(text), err)
	}
}
