package clusterapi

import (
	"fmt"
	"log/slog"
	"math"
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
