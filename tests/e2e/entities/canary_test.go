package entities

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"connectrpc.com/connect"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/hostd/hostd/api/client"
	modulev1 "github.com/hostd/hostd/api/gen/hostd/module/v1"
	"github.com/hostd/hostd/sharding"
	"github.com/hostd/hostd/tests/support/testkit"
	"github.com/hostd/hostd/tests/support/testkit/guest"
)

// canaries is a node with entities of the type note. Module one serves them,
// except that module two serves a part of them. Commands of module two emit
// events of a different type.
type canaries struct {
	*node
	one, two string
	ids      []string
}

func newCanaries(t *testing.T, oneLists, twoLists string) *canaries {
	c := &canaries{node: newNode(t)}
	c.one = c.pushed(noter("1", oneLists))
	res, err := client.UploadModule(t.Context(), c.c, &modulev1.UploadModuleRequest{Wasm: emits(noter("2", twoLists), "new").Build()})
	if err != nil {
		t.Fatal(err)
	}
	c.two = res.GetDigest()
	for i := range 60 {
		c.ids = append(c.ids, fmt.Sprint("e", i))
	}
	c.notes(c.ids...)
	return c
}

// of returns the entities that are in the given share or whose IDs begin with
// the prefix.
func (c *canaries) of(share uint32, prefix string) (ids []string) {
	for _, id := range c.ids {
		if (sharding.EntityID{Type: "note", ID: id}).Bucket() < share || prefix != "" && strings.HasPrefix(id, prefix) {
			ids = append(ids, id)
		}
	}
	return ids
}

func (c *canaries) begin(digest string, share uint32, prefix string) error {
	_, err := client.ActivateModule(c.t.Context(), c.c, &modulev1.ActivateModuleRequest{EntityType: "note", Digest: digest, Rollout: &modulev1.RolloutPlan{Share: share, Prefix: prefix}})
	return err
}

func (c *canaries) change(action modulev1.ChangeRolloutRequest_Action, force bool) (*modulev1.Rollout, error) {
	res, err := client.ChangeRollout(c.t.Context(), c.c, &modulev1.ChangeRolloutRequest{EntityType: "note", Action: action, Force: force})
	return res.GetRollout(), err
}

// written sends a command to each entity, and checks that module two serves
// exactly the entities in byTwo, regardless of which module wrote to them
// before.
func (c *canaries) written(byTwo []string, ids ...string) {
	c.t.Helper()
	for _, id := range ids {
		c.notes(id)
		last, want := "", "happened"
		for e, err := range c.c.ReadEvents(c.t.Context(), client.EventRange{EntityType: "note", EntityID: id}) {
			if err != nil {
				c.t.Fatal(err)
			}
			last = e.Type
		}
		if slices.Contains(byTwo, id) {
			want = "new"
		}
		if last != want {
			c.t.Fatalf("%s was written by the module of %s, want %s", id, last, want)
		}
		got, err := c.c.Entity(c.t.Context(), "note", id)
		if digest := map[string]string{"happened": c.one, "new": c.two}[want]; err != nil || got.GetModuleDigest() != digest {
			c.t.Fatalf("%s is said to be served by %v, want %s: %v", id, got, digest, err)
		}
	}
}

const bothEvents = `[{"type":"happened"},{"type":"new"}]`

// TestNewerModuleServesItsPart checks that the newer module serves exactly the
// entities of its part, that the part can grow but not shrink, and that in the
// end it serves all entities.
func TestNewerModuleServesItsPart(t *testing.T) {
	c := newCanaries(t, bothEvents, bothEvents)
	if err := c.begin(c.one, 100, ""); client.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("the module that serves: %v", err)
	}
	if err := c.begin(c.two, 0, ""); client.CodeOf(err) != connect.CodeInvalidArgument {
		t.Errorf("no entity: %v", err)
	}
	if err := c.begin(c.two, 2000, "e1"); err != nil {
		t.Fatal(err)
	}
	first := c.of(2000, "e1")
	c.written(first, c.ids...)
	c.stop()
	c.start()
	c.written(first, c.ids...)
	if err := c.begin(c.two, 1000, ""); client.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), `20% of the entities and those with the prefix "e1" of note`) {
		t.Errorf("a smaller part: %v", err)
	}
	if err := c.begin(c.two, 5000, ""); err != nil {
		t.Fatal(err)
	}
	second := c.of(5000, "e1")
	if len(first) >= len(second) || len(second) == len(c.ids) {
		t.Fatalf("%d, then %d of %d", len(first), len(second), len(c.ids))
	}
	c.written(second, c.ids...)
	if _, err := client.ActivateModule(t.Context(), c.c, &modulev1.ActivateModuleRequest{EntityType: "note", Digest: c.two}); client.CodeOf(err) != connect.CodeFailedPrecondition {
		t.Errorf("activated meanwhile: %v", err)
	}
	if _, err := c.rollback(false); client.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(err.Error(), "hostd module rollout note --abort") {
		t.Errorf("rolled back meanwhile: %v", err)
	}
	if err := client.RemoveModule(t.Context(), c.c, c.two); err == nil {
		t.Error("a module that serves a part is removed")
	}
	for range 2 { // the second call changes nothing
		if r, err := c.change(modulev1.ChangeRolloutRequest_ACTION_PROMOTE, false); err != nil || r != nil {
			t.Fatal(r, err)
		}
	}
	if c.serves("note") != c.two {
		t.Error("another module serves")
	}
	c.written(c.ids, c.ids...)
	if got := c.kinds(); got != "promote canary canary activate" {
		t.Errorf("the history is %s", got)
	}
	// The entities that joined the part first have the oldest writes.
	if n := c.touched(c.two, c.one); n != uint64(len(c.ids)) {
		t.Errorf("%d entities were written by the newer module, want %d", n, len(c.ids))
	}
	if res, err := c.rollback(false); err != nil || res.GetDigest() != c.one {
		t.Fatal(res, err)
	}
	c.written(nil, c.ids...)
}

// kinds returns the kinds of the type's last changes, newest first.
func (c *canaries) kinds() string {
	c.t.Helper()
	changes, err := client.ModuleHistory(c.t.Context(), c.c, "note")
	if err != nil {
		c.t.Fatal(err)
	}
	var out []string
	for _, change := range changes {
		out = append(out, strings.ToLower(strings.TrimPrefix(change.GetKind().String(), "KIND_")))
	}
	return strings.Join(out, " ")
}

// TestAbortMovesReadableEntitiesBack checks that an abort moves back all
// entities that the older module can read. The other entities stay with the
// newer module and are listed. No further entity joins them unless an operator
// starts another rollout.
func TestAbortMovesReadableEntitiesBack(t *testing.T) {
	c := newCanaries(t, `[{"type":"happened"}]`, bothEvents)
	if err := c.begin(c.two, 3000, ""); err != nil {
		t.Fatal(err)
	}
	part := c.of(3000, "")
	wrote := part[:len(part)/2]
	c.written(part, wrote...)
	r, err := c.change(modulev1.ChangeRolloutRequest_ACTION_ABORT, false)
	slices.Sort(wrote)
	if err != nil || r.GetState() != modulev1.Rollout_STATE_ABORTED || !slices.Equal(r.GetRemainingEntityIds(), wrote) {
		t.Fatalf("%v, want %v to stay: %v", r, wrote, err)
	}
	c.written(wrote, c.ids...)
	if c.serves("note") != c.one {
		t.Error("another module serves")
	}
	c.stop()
	c.start()
	c.written(wrote, c.ids...)
	for _, a := range []modulev1.ChangeRolloutRequest_Action{modulev1.ChangeRolloutRequest_ACTION_ABORT, modulev1.ChangeRolloutRequest_ACTION_RESUME} {
		if _, err := c.change(a, false); client.CodeOf(err) != connect.CodeFailedPrecondition {
			t.Errorf("%v of what stays: %v", a, err)
		}
	}
	// Another rollout takes a larger part, and keeps those entities.
	if err := c.begin(c.two, 6000, ""); err != nil {
		t.Fatal(err)
	}
	more := c.of(6000, "")
	c.written(more, more[:len(more)-1]...)
	r, err = c.change(modulev1.ChangeRolloutRequest_ACTION_ABORT, true)
	if err != nil || r != nil {
		t.Fatal(r, err)
	}
	if got := c.kinds(); got != "abort canary abort canary activate" {
		t.Errorf("the history is %s", got)
	}
	c.written(nil, "fresh")
}

// imported imports a file into a cluster with a different number of shards. It
// interrupts the import repeatedly, each time a little later.
func (c *canaries) imported(file []byte) (*canaries, client.Imported) {
	c.t.Helper()
	in := &canaries{node: &node{t: c.t, dir: c.t.TempDir(), shards: 5}, one: c.one, two: c.two, ids: c.ids}
	testkit.ShareCache(c.t, in.dir)
	in.start()
	c.t.Cleanup(in.stop)
	for lasts := 5 * time.Millisecond; ; lasts += 15 * time.Millisecond {
		ctx, cancel := context.WithTimeout(c.t.Context(), lasts)
		got, err := in.c.Import(ctx, bytes.NewReader(file))
		interrupted := ctx.Err() != nil || client.CodeOf(err) == connect.CodeResourceExhausted // the previous import has not ended yet
		cancel()
		switch {
		case err == nil:
			again, err := in.c.Import(c.t.Context(), bytes.NewReader(file))
			if err != nil || !slices.Equal(again.PausedRollouts, got.PausedRollouts) {
				c.t.Errorf("imported once more: %v, %v, want %v", again.PausedRollouts, err, got.PausedRollouts)
			}
			return in, got
		case !interrupted:
			c.t.Fatal(err)
		case lasts > testkit.Patience:
			c.t.Fatalf("the import does not end: %v", err)
		}
	}
}

// TestBackupKeepsServingModules checks that a cluster restored from a backup
// serves each entity with the module that served it before, and that no entity
// changes its module by itself.
func TestBackupKeepsServingModules(t *testing.T) {
	c := newCanaries(t, `[{"type":"happened"}]`, bothEvents)
	export := func() []byte {
		t.Helper()
		var file bytes.Buffer
		if err := c.c.Export(t.Context(), &file); err != nil {
			t.Fatal(err)
		}
		return file.Bytes()
	}
	before := export()
	plan := &modulev1.RolloutPlan{Share: 3000, Steps: []uint32{6000}, Pause: durationpb.New(time.Hour)}
	if _, err := client.ActivateModule(t.Context(), c.c, &modulev1.ActivateModuleRequest{EntityType: "note", Digest: c.two, Rollout: plan}); err != nil {
		t.Fatal(err)
	}
	part := c.of(3000, "")
	wrote := part[:len(part)/2]
	c.written(part, wrote...)
	under := export()
	if _, err := c.change(modulev1.ChangeRolloutRequest_ACTION_ABORT, false); err != nil {
		t.Fatal(err)
	}
	after := export()

	none, got := c.imported(before)
	if len(got.PausedRollouts) > 0 {
		t.Errorf("%v are served in part before there is a rollout", got.PausedRollouts)
	}
	none.written(nil, none.ids...)

	paused, got := c.imported(under)
	r, err := client.Rollout(t.Context(), paused.c, "note")
	if err != nil || !slices.Equal(got.PausedRollouts, []string{"note"}) || r.GetState() != modulev1.Rollout_STATE_PAUSED || r.GetShare() != 3000 || !slices.Equal(r.GetSteps(), plan.Steps) || !strings.Contains(r.GetNote(), "running") {
		t.Errorf("%v: %v: %v", got.PausedRollouts, r, err)
	}
	paused.written(part, paused.ids...)
	if r, err := paused.change(modulev1.ChangeRolloutRequest_ACTION_RESUME, false); err != nil || r.GetState() != modulev1.Rollout_STATE_RUNNING || !r.GetDueAt().AsTime().After(time.Now()) {
		t.Errorf("resumed: %v: %v", r, err)
	}
	if _, err := paused.change(modulev1.ChangeRolloutRequest_ACTION_PROMOTE, false); err != nil {
		t.Fatal(err)
	}
	paused.written(paused.ids, paused.ids...)

	aborted, got := c.imported(after)
	slices.Sort(wrote)
	r, err = client.Rollout(t.Context(), aborted.c, "note")
	if err != nil || !slices.Equal(got.PausedRollouts, []string{"note"}) || r.GetState() != modulev1.Rollout_STATE_ABORTED || !slices.Equal(r.GetRemainingEntityIds(), wrote) {
		t.Errorf("%v: %v: %v", got.PausedRollouts, r, err)
	}
	aborted.written(wrote, aborted.ids...)
	if _, err := aborted.change(modulev1.ChangeRolloutRequest_ACTION_ABORT, true); err != nil {
		t.Fatal(err)
	}
	if _, err := client.Rollout(t.Context(), aborted.c, "note"); client.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("given back by force: %v", err)
	}
}

// TestAbortWithTooManyRemainingEntitiesIsRejected checks that an abort is rejected if more entities would
// have to stay than can be listed.
func TestAbortWithTooManyRemainingEntitiesIsRejected(t *testing.T) {
	c := newCanaries(t, `[{"type":"happened"}]`, bothEvents)
	if err := c.begin(c.two, 1, "many"); err != nil {
		t.Fatal(err)
	}
	for i := range 101 {
		c.notes(fmt.Sprint("many", i))
	}
	if r, err := c.change(modulev1.ChangeRolloutRequest_ACTION_ABORT, false); client.CodeOf(err) != connect.CodeFailedPrecondition || !strings.Contains(fmt.Sprint(err), "fails on 101 entities") {
		t.Fatal(r, err)
	}
	c.written([]string{"many7"}, "many7")
	if r, err := client.Rollout(t.Context(), c.c, "note"); err != nil || r.GetState() != modulev1.Rollout_STATE_PAUSED {
		t.Error(r, err)
	}
}

// TestRolloutOfDifferentKindIsRejected checks that a rollout is rejected if its
// entities could not go back.
func TestRolloutOfDifferentKindIsRejected(t *testing.T) {
	c := newCanaries(t, "", "")
	for _, kind := range []string{"durable-state", "transient"} {
		m := kept("note", kind, "bytes", "x"+kind)
		res, err := client.UploadModule(t.Context(), c.c, &modulev1.UploadModuleRequest{Wasm: m.Build()})
		if err != nil {
			t.Fatal(err)
		}
		if err := c.begin(res.GetDigest(), 100, ""); reason(err) != "KIND_CHANGED" {
			t.Errorf("%s: %v", kind, err)
		}
	}
	if err := c.begin(strings.Repeat("ab", 32), 100, ""); client.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("no such module: %v", err)
	}
}

// TestOldestWritesOfPartAreFound checks that events that the newer module
// wrote are found, however many events of other entities the older module has
// written since.
func TestOldestWritesOfPartAreFound(t *testing.T) {
	c := &canaries{node: &node{t: t, dir: t.TempDir(), module: "tests/e2e/entities/guest", shards: 1}}
	c.open()
	c.one = c.pushed(noter("1", `[{"type":"happened"}]`))
	res, err := client.UploadModule(t.Context(), c.c, &modulev1.UploadModuleRequest{Wasm: emits(noter("2", bothEvents), "new").Build()})
	if err != nil {
		t.Fatal(err)
	}
	c.two = res.GetDigest()
	c.notes("newer", "other")
	if err := c.begin(c.two, 0, "newer"); err != nil {
		t.Fatal(err)
	}
	c.written([]string{"newer"}, "newer")
	for range 300 {
		c.notes("other")
	}
	r, err := c.change(modulev1.ChangeRolloutRequest_ACTION_ABORT, false)
	if err != nil || !slices.Equal(r.GetRemainingEntityIds(), []string{"newer"}) {
		t.Fatal(r, err)
	}
	// A rollback after the newer module serves all entities finds these events,
	// too.
	if _, err := c.change(modulev1.ChangeRolloutRequest_ACTION_ABORT, true); err != nil {
		t.Fatal(err)
	}
	if err := c.begin(c.two, 0, "fresh"); err != nil {
		t.Fatal(err)
	}
	c.written([]string{"fresh"}, "fresh")
	for range 300 {
		c.notes("other")
	}
	if _, err := c.change(modulev1.ChangeRolloutRequest_ACTION_PROMOTE, false); err != nil {
		t.Fatal(err)
	}
	if _, err := c.rollback(false); reason(err) != "VERIFY_FAILED" || !strings.Contains(fmt.Sprint(err), "fresh at event 1") {
		t.Errorf("rolled back: %v", err)
	}
}

// TestTypesOfModuleAreRolledOutTogether checks that the rollout of a module
// with two types covers both types together, and that an abort moves both back
// together, except for entities that must stay.
func TestTypesOfModuleAreRolledOutTogether(t *testing.T) {
	c := &canaries{node: newNode(t)}
	two := func(version, events string) []byte {
		m := emits(guest.Module{Good: "other", Bad: "note"}, "new")
		m.Manifest = fmt.Sprintf(`{"abi":1,"name":"two","version":%q,"entityTypes":[{"name":"other","kind":"event-sourced","encoding":"bytes"},{"name":"note","kind":"event-sourced","encoding":"bytes","events":%s}]}`, version, events)
		return m.Build()
	}
	upload := func(wasm []byte, activate bool) string {
		t.Helper()
		res, err := client.UploadModule(t.Context(), c.c, &modulev1.UploadModuleRequest{Wasm: wasm, Activate: activate})
		if err != nil {
			t.Fatal(err)
		}
		return res.GetDigest()
	}
	c.one = upload(two("1", `[{"type":"happened"}]`), true)
	c.two = upload(two("2", bothEvents), false)
	if err := c.begin(c.two, 0, "e"); err != nil {
		t.Fatal(err)
	}
	both := []string{"note", "other"}
	if r, err := client.Rollout(t.Context(), c.c, "other"); err != nil || r.GetPrefix() != "e" || !slices.Equal(r.GetEntityTypes(), both) {
		t.Fatalf("the other type: %v, %v", r, err)
	}
	c.notes("e1")
	if _, err := c.c.Send(t.Context(), client.Command{EntityType: "other", EntityID: "e2", Name: "go"}); err != nil {
		t.Fatal(err)
	}
	if r, err := c.change(modulev1.ChangeRolloutRequest_ACTION_ABORT, false); err != nil || !slices.Equal(r.GetRemainingEntityIds(), []string{"e1"}) || !slices.Equal(r.GetEntityTypes(), both[:1]) {
		t.Fatal(r, err)
	}
	if r, err := client.Rollout(t.Context(), c.c, "other"); client.CodeOf(err) != connect.CodeNotFound {
		t.Errorf("the other type has none that stays: %v, %v", r, err)
	}
	if r, err := c.change(modulev1.ChangeRolloutRequest_ACTION_PROMOTE, false); err != nil || r != nil || c.serves("note") != c.two || c.serves("other") != c.one {
		t.Errorf("promoted for what stays: %v, %v", r, err)
	}
}

// TestClusterTakesRolloutSteps checks that the cluster takes the steps of a
// rollout in order until all entities are served, also across a restart of the
// node. A paused rollout takes no step, and due steps wait.
func TestClusterTakesRolloutSteps(t *testing.T) {
	c := newCanaries(t, bothEvents, bothEvents)
	plan := func(pause time.Duration, share uint32, steps ...uint32) error {
		_, err := client.ActivateModule(c.t.Context(), c.c, &modulev1.ActivateModuleRequest{
			EntityType: "note", Digest: c.two, Rollout: &modulev1.RolloutPlan{Share: share, Steps: steps, Pause: durationpb.New(pause)},
		})
		return err
	}
	for _, wrong := range []error{plan(time.Second, 500), plan(time.Second, 500, 400), plan(time.Second, 500, 600, 600), plan(time.Millisecond, 500, 600), plan(1000*time.Hour, 500, 600)} {
		if client.CodeOf(wrong) != connect.CodeInvalidArgument {
			t.Errorf("a plan that is none: %v", wrong)
		}
	}
	if err := plan(time.Hour, 500, 3000, 10_000); err != nil {
		t.Fatal(err)
	}
	c.written(c.of(500, ""), c.ids...)
	r, err := client.Rollout(t.Context(), c.c, "note")
	if err != nil || r.GetState() != modulev1.Rollout_STATE_RUNNING || time.Until(r.GetDueAt().AsTime()) < 30*time.Minute || !slices.Equal(r.GetSteps(), []uint32{3000, 10_000}) {
		t.Fatal(r, err)
	}
	// Repeating the call changes nothing, and does not restart the pause.
	if err := plan(time.Hour, 500, 3000, 10_000); err != nil {
		t.Fatal(err)
	}
	if again, err := client.Rollout(t.Context(), c.c, "note"); err != nil || !proto.Equal(again, r) {
		t.Fatalf("%v, after %v: %v", again, r, err)
	}
	if r, err = c.change(modulev1.ChangeRolloutRequest_ACTION_PAUSE, false); err != nil || r.GetState() != modulev1.Rollout_STATE_PAUSED || r.GetDueAt() != nil {
		t.Fatal(r, err)
	}
	// A different plan for the same module continues from the current share.
	if err := plan(time.Second, 600, 3000, 10_000); err != nil {
		t.Fatal(err)
	}
	if r, err = client.Rollout(t.Context(), c.c, "note"); err != nil || r.GetShare() != 600 || r.GetState() != modulev1.Rollout_STATE_PAUSED {
		t.Fatal(r, err)
	}
	if _, err := c.change(modulev1.ChangeRolloutRequest_ACTION_RESUME, false); err != nil {
		t.Fatal(err)
	}
	c.stop()
	c.start()
	for deadline := time.Now().Add(testkit.Patience); c.serves("note") != c.two; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the steps are not taken")
		}
		for _, id := range c.of(600, "") {
			c.written(c.of(600, ""), id)
		}
	}
	c.written(c.ids, c.ids...)
	if got := c.kinds(); got != "promote canary canary canary activate" {
		t.Errorf("the history is %s", got)
	}
}
