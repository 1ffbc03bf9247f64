package host_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/archive"
)

// rewritten copies an archive with a different description of its cluster.
type rewritten struct {
	edit func(about map[string]any)
	file bytes.Buffer
	to   *archive.Writer
}

func (r *rewritten) Cluster(id archive.ID, text []byte) error {
	var about map[string]any
	err := json.Unmarshal(text, &about)
	if err == nil {
		r.edit(about)
		text, err = json.Marshal(about)
	}
	if err == nil {
		r.to, err = archive.NewWriter(&r.file, id, text)
	}
	return err
}
func (r *rewritten) Module(digest journal.Digest, wasm []byte) error {
	return r.to.Module(digest, wasm)
}
func (r *rewritten) Begin(s archive.Shard) error                   { return r.to.Begin(s) }
func (r *rewritten) Part(kind journal.PartKind, data []byte) error { return r.to.Part(kind, data) }
func (r *rewritten) End(archive.Shard) error                       { return r.to.End() }

// TestSettingsOfFilesAreChecked checks that an import skips settings that no
// caller could have set, names them, and imports the rest of the file.
func TestSettingsOfFilesAreChecked(t *testing.T) {
	from, c := start(t, t.TempDir())
	defer stop(t, from)
	bad := map[string]string{
		"entity.counter.max-timers": "many", "entity.counter.nothing": "1", "log.leveL": "info", "module-quota-count": "-1",
		"entity.counter.shadow": fmt.Sprintf("%064x 10%%", 7), "no name": "1",
	}
	good := map[string]string{"entity.other.retain-events": "all", "theirs": "kept"}
	r := rewritten{edit: func(about map[string]any) {
		var settings []any
		for _, all := range []map[string]string{bad, good} {
			for key, value := range all {
				settings = append(settings, map[string]any{"key": key, "value": []byte(value)})
			}
		}
		about["settings"] = settings
	}}
	if _, err := archive.Read(bytes.NewReader(export(t, c)), &r, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := r.to.Close(); err != nil {
		t.Fatal(err)
	}
	to, c := start(t, t.TempDir())
	defer stop(t, to)
	got, err := c.Import(t.Context(), &r.file)
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for key := range bad {
		want = append(want, "setting "+key)
	}
	slices.Sort(want)
	slices.Sort(got.Omitted)
	if !slices.Equal(got.Omitted, want) {
		t.Errorf("left out %q, want %q", got.Omitted, want)
	}
	set, _, err := c.Settings(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	if len(set) != len(good) {
		t.Errorf("%d settings were imported, want %d: %v", len(set), len(good), set)
	}
	for _, s := range set {
		if good[s.GetKey()] != s.GetValue() {
			t.Errorf("setting %s is %q, want %q", s.GetKey(), s.GetValue(), good[s.GetKey()])
		}
	}
}
