package client

import (
	"errors"
	"reflect"
	"testing"

	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
)

// TestSettingPagesHaveOneRevision checks that all pages are read again if a
// setting changes in between.
func TestSettingPagesHaveOneRevision(t *testing.T) {
	page := func(key, next string, revision uint64) *clusterv1.ListSettingsResponse {
		return &clusterv1.ListSettingsResponse{Settings: []*clusterv1.Setting{{Key: key}}, NextPageToken: next, Revision: revision}
	}
	answers := []*clusterv1.ListSettingsResponse{page("old", "2", 1), page("old too", "", 2), page("a", "2", 2), page("b", "3", 2), page("c", "", 2)}
	var asked []string
	settings, revision, err := allSettings("p", func(r *clusterv1.ListSettingsRequest) (*clusterv1.ListSettingsResponse, error) {
		asked = append(asked, r.GetKeyPrefix()+r.GetPageToken())
		next := answers[0]
		answers = answers[1:]
		return next, nil
	})
	if err != nil || revision != 2 || len(settings) != 3 || settings[0].GetKey() != "a" || settings[2].GetKey() != "c" {
		t.Errorf("%v, %d, %v", settings, revision, err)
	}
	if want := []string{"p", "p2", "p", "p2", "p3"}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
	lost := errors.New("lost")
	if _, _, err := allSettings("", func(*clusterv1.ListSettingsRequest) (*clusterv1.ListSettingsResponse, error) { return nil, lost }); !errors.Is(err, lost) {
		t.Errorf("got %v", err)
	}
}

// TestRolePagesHaveOneRevision checks that all pages are read again if a role
// changes in between, because roles of two revisions may grant what neither grants.
func TestRolePagesHaveOneRevision(t *testing.T) {
	page := func(name, next string, revision uint64) *clusterv1.ListRolesResponse {
		return &clusterv1.ListRolesResponse{Roles: []*clusterv1.Role{{Name: name}}, NextPageToken: next, Revision: revision}
	}
	answers := []*clusterv1.ListRolesResponse{page("old", "2", 1), page("old too", "", 2), page("a", "2", 2), page("b", "", 2)}
	var asked []string
	roles, last, err := samePages(func(token string) ([]*clusterv1.Role, *clusterv1.ListRolesResponse, error) {
		asked = append(asked, token)
		next := answers[0]
		answers = answers[1:]
		return next.GetRoles(), next, nil
	})
	if err != nil || last.GetRevision() != 2 || len(roles) != 2 || roles[0].GetName() != "a" || roles[1].GetName() != "b" {
		t.Errorf("%v, %v, %v", roles, last, err)
	}
	if want := []string{"", "2", "", "2"}; !reflect.DeepEqual(asked, want) {
		t.Errorf("asked for %q, want %q", asked, want)
	}
}
