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
