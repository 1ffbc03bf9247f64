package host_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"connectrpc.com/connect"

	"github.com/hostd/hostd/api/client"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/archive"
	"github.com/hostd/hostd/sharding"
)

// described keeps the description of the cluster in an archive.
type described struct{ text []byte }

func (d *described) Cluster(_ archive.ID, text []byte) error {
	d.text = bytes.Clone(text)
	return nil
}
func (*described) Module(journal.Digest, []byte) error        { return nil }
func (*described) Begin(archive.Shard) error                  { return nil }
func (*described) Part(kind journal.PartKind, _ []byte) error { return nil }
func (*described) End(archive.Shard) error                    { return nil }

// TestExportOfLaterClusterVersionIsRejected: an export file contains the cluster version
// of its cluster, and a cluster of a lower version rejects it.
func TestExportOfLaterClusterVersionIsRejected(t *testing.T) {
	n, c := start(t, t.TempDir())
	defer stop(t, n)
	var made described
	if _, err := archive.Read(bytes.NewReader(export(t, c)), &made, nil); err != nil {
		t.Fatal(err)
	}
	var about map[string]any
	if err := json.Unmarshal(made.text, &about); err != nil || about["level"] != float64(sharding.MaxVersion) {
		t.Fatalf("the file is of level %v: %v", about["level"], err)
	}
	// of imports only the beginning of an export file that has the given
	// cluster version.
	of := func(level sharding.ClusterVersion) error {
		about["level"] = level
		text, err := json.Marshal(about)
		if err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if _, err := archive.NewWriter(&file, archive.ID{1}, text); err != nil {
			t.Fatal(err)
		}
		_, err = c.Import(t.Context(), &file)
		return err
	}
	later := of(sharding.MaxVersion + 1)
	if want := fmt.Sprintf("the backup needs cluster version %d", sharding.MaxVersion+1); client.CodeOf(later) != connect.CodeFailedPrecondition || !strings.Contains(later.Error(), want) {
		t.Errorf("a file of a later level: %v", later)
	}
	for _, level := range []sharding.ClusterVersion{0, sharding.Version1, sharding.MaxVersion} {
		if err := of(level); client.CodeOf(err) != connect.CodeInvalidArgument { // accepted so far, but the file is incomplete
			t.Errorf("half a file of level %d: %v", level, err)
		}
	}
}
