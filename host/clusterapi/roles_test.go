package clusterapi

import (
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"testing"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host/edge/page"
	"github.com/hostd/hostd/sharding/access"
)

// roleShelf is a RoleStore with fixed contents.
type roleShelf struct {
	RoleStore
	roles    []access.Role
	bindings []access.Binding
}

func (s *roleShelf) Roles() ([]access.Role, uint64, error) { return s.roles, math.MaxUint64, nil }

func (s *roleShelf) RoleBindings() ([]access.Binding, uint64, error) {
	return s.bindings, math.MaxUint64, nil
}

// TestRolesComeInPages: whatever the page size, roles and role bindings are listed
// once each and in the order of their names, and a token of one listing is rejected
// by the other.
func TestRolesComeInPages(t *testing.T) {
	s := &roleShelf{}
	want := len(access.BuiltIn()) + 9
	for i := range 9 {
		s.roles = append(s.roles, access.Role{Name: fmt.Sprintf("r%d", 9-i)})
		s.bindings = append(s.bindings, access.Binding{Subject: fmt.Sprintf("token:%d", 9-i)})
	}
	service := &roleService{Store: s, Logger: slog.New(slog.DiscardHandler)}
	for _, size := range []uint32{0, 1, 4} {
		var roles, subjects []string
		token := ""
		for more := true; more; more = token != "" {
			res, err := service.ListRoles(t.Context(), connect.NewRequest(&clusterv1.ListRolesRequest{PageSize: size, PageToken: token}))
			if err != nil || size > 0 && len(res.Msg.GetRoles()) > int(size) {
				t.Fatalf("pages of %d: %v, %v", size, res, err)
			}
			for _, r := range res.Msg.GetRoles() {
				roles = append(roles, r.GetName())
			}
			if token = res.Msg.GetNextPageToken(); token != "" {
				if _, err := service.ListRoleBindings(t.Context(), connect.NewRequest(&clusterv1.ListRoleBindingsRequest{PageToken: token})); connect.CodeOf(err) != connect.CodeInvalidArgument {
					t.Errorf("a token of the roles in the bindings: %v", err)
				}
			}
		}
		for more := true; more; more = token != "" {
			res, err := service.ListRoleBindings(t.Context(), connect.NewRequest(&clusterv1.ListRoleBindingsRequest{PageSize: size, PageToken: token}))
			if err != nil || size > 0 && len(res.Msg.GetBindings()) > int(size) {
				t.Fatalf("pages of %d: %v, %v", size, res, err)
			}
			for _, b := range res.Msg.GetBindings() {
				subjects = append(subjects, b.GetSubject())
			}
			token = res.Msg.GetNextPageToken()
		}
		if len(roles) != want || !slices.IsSorted(roles) || len(subjects) != 9 || !slices.IsSorted(subjects) {
			t.Errorf("pages of %d: roles %q, subjects %q", size, roles, subjects)
		}
	}
}

// TestRolesFitInAnAnswer checks that all roles of a cluster, or all its role
// bindings, fit into one response, whatever they contain.
func TestRolesFitInAnAnswer(t *testing.T) {
	for _, pattern := range []int{1, 8, 100, access.MaxPatternBytes} {
		s, size := &roleShelf{}, 0
		for i := 0; i < access.MaxRoles; i++ {
			r := access.Role{Name: fmt.Sprint(i), Revision: math.MaxUint64, Quotas: access.Quotas{CommandsPerSecond: -1, FuelPerSecond: -1, BytesPerSecond: -1, Streams: -1, Connections: -1, Uploads: -1, CompileSeconds: -1}}
			for range access.MaxRules {
				var list []string
				for range access.MaxRuleEntries {
					list = append(list, strings.Repeat("x", pattern))
				}
				r.Rules = append(r.Rules, access.Rule{Effect: access.Allow, Verbs: []string{"*"}, Types: list, IDPrefixes: list, Commands: list})
				if size+r.Size() > access.MaxBytes {
					r.Rules = r.Rules[:len(r.Rules)-1]
					break
				}
			}
			size += r.Size()
			s.roles = append(s.roles, r)
		}
		size = 0
		for i := range access.MaxBindings {
			b := access.Binding{Subject: fmt.Sprintf("token:%d", i), Revision: math.MaxUint64}
			for range access.MaxBindingRoles {
				b.Roles = append(b.Roles, strings.Repeat("r", min(pattern, access.MaxNameBytes)))
			}
			if size += b.Size(); size > access.MaxBytes {
				break
			}
			s.bindings = append(s.bindings, b)
		}
		service := &roleService{Store: s, Logger: slog.New(slog.DiscardHandler)}
		roles, err := service.ListRoles(t.Context(), connect.NewRequest(&clusterv1.ListRolesRequest{}))
		if err != nil || proto.Size(roles.Msg) > page.MaxAnswer {
			t.Errorf("patterns of %d bytes: roles of %d bytes, %v", pattern, proto.Size(roles.Msg), err)
		}
		bindings, err := service.ListRoleBindings(t.Context(), connect.NewRequest(&clusterv1.ListRoleBindingsRequest{}))
		if err != nil || proto.Size(bindings.Msg) > page.MaxAnswer {
			t.Errorf("names of %d bytes: bindings of %d bytes, %v", pattern, proto.Size(bindings.Msg), err)
		}
	}
}
