package backup

import (
	"reflect"
	"testing"

	"github.com/hostd/hostd/sharding/access"
)

// TestImportGrantsNobodySecurity: the author of an archive cannot use it to
// get a role that allows granting other roles.
func TestImportGrantsNobodySecurity(t *testing.T) {
	role := func(name string, effect access.Effect, verbs ...string) access.Role {
		return access.Role{Name: name, Rules: []access.Rule{{Effect: access.Allow, Verbs: []string{access.Read}}, {Effect: effect, Verbs: verbs}}}
	}
	bound := func(subject string, roles ...string) access.Binding {
		return access.Binding{Subject: subject, Roles: roles}
	}
	clerk, all, officer := role("clerk", access.Allow, access.Invoke), role("all", access.Allow, access.Any), role("officer", access.Allow, access.Query, access.Security)
	closed, tamed := role("closed", access.Deny, access.Invoke), role("tamed", access.Allow, access.Query)
	roles := []access.Role{clerk, all, officer, closed, tamed}
	bindings := []access.Binding{
		bound("token:ann", "clerk", "closed", "admin"), bound("token:bo", "all"), bound("token:cy", "officer", "viewer"),
		bound("token:di", "here"), bound("token:ed", "tamed"), bound("token:flo", "admin"),
	}
	own := []access.Role{role("here", access.Allow, access.Security), role("tamed", access.Allow, access.Any), role("officer", access.Allow, access.Read)}
	put, bind, leftOut := importableRoles(roles, bindings, own, false)
	if want := []access.Role{clerk, closed, tamed}; !reflect.DeepEqual(put, want) {
		t.Errorf("roles %v, want %v", put, want)
	}
	if want := []access.Binding{bound("token:ann", "clerk", "closed"), bound("token:cy", "viewer"), bound("token:ed", "tamed")}; !reflect.DeepEqual(bind, want) {
		t.Errorf("bindings %v, want %v", bind, want)
	}
	if want := []string{"role all", "role officer", "token:bo has all", "token:cy has officer", "token:di has here"}; !reflect.DeepEqual(leftOut, want) {
		t.Errorf("left out %q, want %q", leftOut, want)
	}
	put, bind, leftOut = importableRoles(roles, bindings, own, true)
	if want := []access.Binding{bound("token:ann", "clerk", "closed"), bound("token:bo", "all"), bound("token:cy", "officer", "viewer"), bound("token:di", "here"), bound("token:ed", "tamed")}; !reflect.DeepEqual(put, roles) || !reflect.DeepEqual(bind, want) || leftOut != nil {
		t.Errorf("all of it: %v, %v, left out %q", put, bind, leftOut)
	}
}
