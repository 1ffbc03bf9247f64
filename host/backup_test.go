package host_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"fmt"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"connectrpc.com/connect"
	"github.com/hostd/hostd/api/client"
	clusterv1 "github.com/hostd/hostd/api/gen/hostd/cluster/v1"
	"github.com/hostd/hostd/host"
	"github.com/hostd/hostd/journal/archive"
	"github.com/hostd/hostd/tests/support/testkit"
)

// eventually waits until ok returns true.
func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 60*time.Second)
	defer cancel()
	for !ok() {
		if ctx.Err() != nil {
			t.Fatalf("waited too long for %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// history returns an entity's events as text.
func history(t *testing.T, c *client.Client, id string) (all []string) {
	t.Helper()
	for e, err := range c.ReadEvents(t.Context(), client.EventRange{EntityType: "alarm", EntityID: id}) {
		if err != nil {
			t.Fatalf("%s: %v", id, err)
		}
		all = append(all, fmt.Sprintf("%d %s %s %s %d %v %s", e.Sequence, e.Type, e.Data, e.CommandID, e.RecordedAt.UnixNano(), e.Tags, e.ModuleDigest))
	}
	return all
}

// export returns an export of a cluster.
func export(t *testing.T, c *client.Client) []byte {
	t.Helper()
	var file bytes.Buffer
	// A node that has just been paused may reject the call.
	eventually(t, "an export", func() bool {
		file.Reset()
		err := c.Export(t.Context(), &file)
		if err != nil && client.CodeOf(err) != connect.CodeUnavailable {
			t.Fatalf("export: %v", err)
		}
		return err == nil
	})
	if _, err := archive.Verify(bytes.NewReader(file.Bytes()), nil); err != nil {
		t.Fatalf("the file of an export: %v", err)
	}
	return file.Bytes()
}

// TestExportUnderLoadIsImported: an export taken while commands run contains
// everything that was acknowledged before the export began, and only events
// that happened. Its import has the same result in clusters of other sizes.
func TestExportUnderLoadIsImported(t *testing.T) {
	testkit.Long(t, "long")
	if testing.Short() {
		t.Skip("three clusters of seven nodes: run without -short")
	}
	const entities = 21
	from := startCluster(t, 3, 16)
	c := dialNode(t, from[0])
	ctx := t.Context()
	if _, err := c.Upload(ctx, testkit.BuildGuest(t, "tests/e2e/entities/guest"), true); err != nil {
		t.Fatal(err)
	}
	send := func(c *client.Client, id, command, data, name string) client.Reply {
		t.Helper()
		r, err := c.Send(ctx, client.Command{EntityType: "alarm", EntityID: id, Name: command, Data: []byte(data), ID: name})
		if err != nil {
			t.Fatalf("%s of %s: %v", command, id, err)
		}
		return r
	}
	replies := map[string]string{}
	for i := range entities {
		id := fmt.Sprint("e", i)
		for k := range 1 + i%4 {
			replies[id] = string(send(c, id, "add", `{"amount":1}`, fmt.Sprint("add", k)).Data)
		}
		switch {
		case i%7 == 0:
			send(c, id, "arm", `{"name":"once","afterMs":3000,"times":1}`, "arm")
		case i%7 == 1:
			send(c, id, "remove", "null", "remove")
		case i%7 == 2:
			send(c, id, "remove", "null", "remove")
			send(c, id, "add", `{"amount":7}`, "again")
		}
	}
	if _, err := c.PutSetting(ctx, "greeting", "hello"); err != nil {
		t.Fatal(err)
	}
	if _, err := c.PutRole(ctx, "clerk", &clusterv1.RoleRule{Effect: "allow", Verbs: []string{"invoke"}, Types: []string{"alarm"}}); err != nil {
		t.Fatal(err)
	}
	for subject, roles := range map[string][]string{"token:ann": {"clerk"}, "token:bo": {"admin", "viewer"}, "token:root": {"admin"}} {
		if _, err := c.PutRoleBinding(ctx, subject, roles...); err != nil {
			t.Fatal(err)
		}
	}
	if err := c.SetTypeOwner(ctx, "alarm", "group:team-a"); err != nil {
		t.Fatal(err)
	}
	if _, err := client.TokensOf(c).Create(ctx, "ci", sha256.Sum256([]byte("hst_ci")), time.Time{}, "viewer"); err != nil {
		t.Fatal(err)
	}
	var acked [entities]atomic.Uint64
	var load sync.WaitGroup
	stop := make(chan struct{})
	for w := range 4 {
		load.Go(func() {
			c, err := client.Dial("http://" + from[w%3].Addr())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			for n := w; ; n += 4 {
				select {
				case <-stop:
					return
				default:
				}
				i := n % entities
				r, err := c.Send(context.Background(), client.Command{EntityType: "alarm", EntityID: fmt.Sprint("e", i), Name: "add", Data: []byte(`{"amount":2}`)})
				if err != nil {
					t.Errorf("under load: %v", err)
					return
				}
				for old := acked[i].Load(); old < r.Sequence && !acked[i].CompareAndSwap(old, r.Sequence); old = acked[i].Load() {
				}
			}
		})
	}
	eventually(t, "commands to run", func() bool { return acked[entities-1].Load() > 0 })
	var before [entities]uint64
	for i := range before {
		before[i] = acked[i].Load()
	}
	file := export(t, c)
	close(stop)
	load.Wait()

	one := startCluster(t, 1, 5)
	three := startCluster(t, 3, 7)
	var first [entities]int
	for k, to := range [][]*host.Node{one, three} {
		c2 := dialNode(t, to[len(to)-1])
		if k == 1 { // first a truncated file, then the whole one
			if _, err := c2.Import(ctx, bytes.NewReader(file[:len(file)-60])); client.CodeOf(err) != connect.CodeInvalidArgument {
				t.Errorf("a part of the file: %v", err)
			}
			if _, err := c2.Send(ctx, client.Command{EntityType: "alarm", EntityID: "e1", Name: "add", Data: []byte(`{"amount":1}`)}); client.CodeOf(err) != connect.CodeNotFound {
				t.Errorf("a command to half an import: %v", err)
			}
			if _, err := c2.Import(ctx, bytes.NewReader(export(t, c))); client.CodeOf(err) != connect.CodeFailedPrecondition {
				t.Errorf("another file into half an import: %v", err)
			}
		}
		sum, err := c2.Import(ctx, bytes.NewReader(file))
		if err != nil || sum.Entities != entities || sum.Shards != 16 {
			t.Fatalf("%+v, %v", sum, err)
		}
		for i := range entities {
			id := fmt.Sprint("e", i)
			got, was := history(t, c2, id), history(t, c, id)
			if uint64(len(got)) < before[i] || len(got) > len(was) {
				t.Fatalf("%s: %d events of %d came, %d were acknowledged", id, len(got), len(was), before[i])
			}
			whole := len(got)
			if k == 0 {
				first[i] = whole
			}
			if i%7 == 0 { // its timer may have fired in both clusters
				got, was = rungOnce(got), rungOnce(was)
				whole = min(len(got), len(was))
			}
			for n := range whole {
				if got[n] != was[n] {
					t.Fatalf("%s: event %d is\n%s, was\n%s", id, n+1, got[n], was[n])
				}
			}
			if i%7 > 2 && len(got) != first[i] {
				t.Errorf("%s: %d events in one cluster and %d in the other", id, first[i], len(got))
			}
			// The reply of the last command before the export is still known.
			r := send(c2, id, "add", `{"amount":1}`, fmt.Sprint("add", i%4))
			if !r.Duplicate || string(r.Data) != replies[id] {
				t.Errorf("%s: a known command: %+v %s, want %s", id, r, r.Data, replies[id])
			}
		}
		for i := 0; i < entities; i += 7 {
			eventually(t, "an imported timer to fire once", func() bool {
				return strings.Count(strings.Join(history(t, c2, fmt.Sprint("e", i)), "\n"), " rang ") == 1
			})
		}
		// An import must not change who is admin.
		if b, err := c2.RoleBindings(ctx); err != nil || len(b.GetBindings()) != 2 || b.GetEnforced() || b.GetBindings()[0].GetSubject() != "token:ann" || b.GetBindings()[0].GetRoles()[0] != "clerk" || b.GetBindings()[1].GetSubject() != "token:bo" || len(b.GetBindings()[1].GetRoles()) != 1 {
			t.Errorf("roles after the import: %v, %v", b, err)
		}
		if owner, err := c2.TypeOwner(ctx, "alarm"); err != nil || owner != "group:team-a" {
			t.Errorf("the owner after the import: %q, %v", owner, err)
		}
		// Tokens are not imported either: otherwise anybody who can write an
		// export file could call the new cluster.
		if kept, err := client.TokensOf(c2).List(ctx); err != nil || len(kept) != 0 {
			t.Errorf("tokens after the import: %v, %v", kept, err)
		}
		if s, err := c2.Setting(ctx, "greeting"); err != nil || s.Value != "hello" {
			t.Errorf("%v, %v", s, err)
		}
		// New commands continue the sequence.
		r := send(c2, "e3", "add", `{"amount":1}`, "")
		if want := uint64(len(history(t, c2, "e3"))); r.Sequence != want || r.Duplicate {
			t.Errorf("%+v after %d events", r, want)
		}
		if _, err := c2.Import(ctx, bytes.NewReader(file)); err != nil {
			t.Errorf("the same file again: %v", err)
		}
		again := export(t, c2)
		if _, err := archive.Verify(bytes.NewReader(again), nil); err != nil {
			t.Error(err)
		}
	}
	if _, err := c.Import(ctx, bytes.NewReader(file)); client.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "not empty") {
		t.Errorf("into a cluster that is in use: %v", err)
	}
}

// rungOnce drops the event of a timer that has fired, and all later events.
func rungOnce(events []string) (out []string) {
	for _, e := range events {
		if strings.Contains(e, " rang ") {
			return out
		}
		out = append(out, e)
	}
	return out
}

// TestDamagedArchiveIsRejected: nothing is imported from a file that is not an
// archive.
func TestDamagedArchiveIsRejected(t *testing.T) {
	n, c := start(t, t.TempDir())
	defer stop(t, n)
	for name, file := range map[string]io.Reader{"nothing": strings.NewReader(""), "text": strings.NewReader(strings.Repeat("no archive ", 1000))} {
		if _, err := c.Import(t.Context(), file); client.CodeOf(err) != connect.CodeInvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
	}
	file := export(t, c)
	if _, err := c.Import(t.Context(), bytes.NewReader(file)); err != nil {
		t.Errorf("an empty cluster into itself: %v", err)
	}
}

// TestArchiveIsImportedOnce: if a file is imported again after the import
// completed, changes made in the cluster since then are kept.
func TestArchiveIsImportedOnce(t *testing.T) {
	wasm := testkit.BuildExample(t, "counter")
	other := append(bytes.Clone(wasm), 0, 2, 1, 'x') // a custom section without meaning
	ctx := t.Context()
	upload := func(c *client.Client, wasm []byte) string {
		t.Helper()
		m, err := c.Upload(ctx, wasm, true)
		if err != nil {
			t.Fatal(err)
		}
		return m.Digest
	}
	put := func(c *client.Client, value string) {
		t.Helper()
		if _, err := c.PutSetting(ctx, "greeting", value); err != nil {
			t.Fatal(err)
		}
	}
	send := func(c *client.Client) client.Reply {
		t.Helper()
		r, err := c.Send(ctx, client.Command{EntityType: "counter", EntityID: "a", Name: "add", Data: []byte(`{"amount":1}`)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	n, c := start(t, t.TempDir())
	defer stop(t, n)
	upload(c, other)
	old := upload(c, wasm)
	put(c, "of the file")
	send(c)
	file := export(t, c)

	to, c2 := start(t, t.TempDir())
	defer stop(t, to)
	for i := range 2 {
		if _, err := c2.Import(ctx, bytes.NewReader(file)); err != nil {
			t.Fatalf("import %d: %v", i, err)
		}
	}
	serving := func() string {
		t.Helper()
		a, err := c2.ActiveModule(ctx, "counter")
		if err != nil {
			t.Fatal(err)
		}
		return a.GetModule().GetDigest()
	}
	if got := serving(); got != old {
		t.Fatalf("%s serves after the import, want %s", got, old)
	}
	if _, err := c2.Rollback(ctx, "counter"); err != nil {
		t.Fatal(err)
	}
	back := serving()
	if back == old {
		t.Fatal("the history was not imported")
	}
	if _, err := c2.Rollback(ctx, "counter"); err == nil {
		t.Error("the history is longer than that of the file")
	}
	put(c2, "of the cluster")
	before := send(c2)
	if _, err := c2.Import(ctx, bytes.NewReader(file)); err != nil {
		t.Fatalf("the same file again: %v", err)
	}
	if got := serving(); got != back {
		t.Errorf("%s serves after the same file again, want %s", got, back)
	}
	if s, err := c2.Setting(ctx, "greeting"); err != nil || s.Value != "of the cluster" {
		t.Errorf("the setting after the same file again: %v, %v", s, err)
	}
	if r := send(c2); r.Sequence != before.Sequence+1 {
		t.Errorf("a command after the same file again makes event %d, want %d", r.Sequence, before.Sequence+1)
	}
}
