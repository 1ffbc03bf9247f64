package replay

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hostd/hostd/abi/jsontext"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/status"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

const (
	// verifyPage is how many entities are listed at a time.
	verifyPage = 512
	// eachEvents bounds the histories that are searched for the first event that
	// makes a difference: of longer ones the last is named.
	eachEvents = 10_000
	// bindingWait is for a binding that this node has not heard of yet.
	bindingWait = 10 * time.Second
	// shownStateBytes is how much of a state a difference shows.
	shownStateBytes = 160
	// maxPatch and maxPatchBytes bound the patch of a difference.
	maxPatch, maxPatchBytes = 100, 4 << 10
)

// Verify replays entities of one shard with a module and with the one that
// serves their type, and tells what came of each. One runs at a time on a node;
// others wait as long as ctx. It ends with the first error of tell.
func (r *Replays) Verify(ctx context.Context, q VerifyRequest, tell func(Verified) error) error {
	select {
	case r.verifying <- struct{}{}:
		defer func() { <-r.verifying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	v := &verifier{Options: r.opts, pace: r.pace, shard: q.Shard, entityType: q.EntityType, revision: q.Revision, told: q.Told}
	defer v.close()
	defer context.AfterFunc(ctx, v.interrupt)()
	if err := v.open(ctx, q.Digest); err != nil {
		return err
	}
	if q.Sample == 0 {
		return v.each(ctx, func(id sharding.EntityID) error { return v.verify(ctx, id, tell) })
	}
	// A reservoir: each entity of the shard is as likely as any other.
	sample, seen := make([]sharding.EntityID, 0, min(q.Sample, verifyPage)), 0
	err := v.each(ctx, func(id sharding.EntityID) error {
		if seen++; len(sample) < q.Sample {
			sample = append(sample, id)
		} else if at := q.Draw(seen); at < q.Sample {
			sample[at] = id
		}
		return nil
	})
	for i := 0; err == nil && i < len(sample); i++ {
		err = v.verify(ctx, sample[i], tell)
	}
	return err
}

// verifier replays entities of one type and shard, one after the other, with
// two modules at once.
type verifier struct {
	Options
	shard      sharding.ShardID
	entityType string
	pace       *pace       // nil: none
	revision   uint64      // of the binding that is compared with; 0: any
	told       func() bool // no further difference is told; nil: all are
	sameState  bool        // both modules say the same version of the state
	// snapshotsOf are modules whose snapshots the one that serves loads.
	snapshotsOf []journal.Digest
	kind        manifest.Kind
	encoding    manifest.Encoding
	served      *modules.Served

	tried, serving fold
	id             sharding.EntityID // that is replayed
	stepwise       bool              // the states are compared after each event
	alike          bool              // both are the same module
	out            *Verified         // what comes of the entity that is replayed
}

// errDiffers ends the replay of an entity: what differs is noted.
var errDiffers = errors.New("the module differs")

func (v *verifier) close() {
	v.tried.close()
	v.serving.close()
}

// interrupt ends the guests' calls.
func (v *verifier) interrupt() {
	v.tried.interrupt()
	v.serving.interrupt()
}

// open finds both modules.
func (v *verifier) open(ctx context.Context, digest journal.Digest) error {
	t, err := v.bound(ctx)
	if err != nil {
		return err
	}
	if t == nil {
		return request.ErrModuleNotLoaded
	}
	if v.revision != 0 && v.revision != t.Revision {
		return &status.RefusedError{Reason: fmt.Sprintf("%s is served under revision %d, not %d", v.entityType, t.Revision, v.revision)}
	}
	if t.Transient {
		return &status.RefusedError{Reason: "the entities of this type keep no state: there is nothing to replay"}
	}
	for _, f := range []struct {
		*fold
		digest journal.Digest
		get    func(context.Context, journal.Digest, sharding.NodeID) (*guest.Module, error)
	}{{&v.tried, digest, v.Modules.ToRun}, {&v.serving, t.Digest, v.Modules.Module}} {
		m, err := f.get(ctx, f.digest, "")
		if err != nil {
			return err
		}
		about, index, ok := m.Manifest().Type(v.entityType)
		if !ok {
			return &request.InvalidModuleError{Reason: fmt.Sprintf("the module does not serve entity type %q", v.entityType)}
		}
		f.module, f.fold.digest, f.index, f.states = m, f.digest, uint32(index), about.States()
		f.bound(t)
		if f.fold == &v.serving {
			if v.kind != about.Kind {
				return &request.InvalidModuleError{Reason: fmt.Sprintf("the module says that %q is %s, it is %s", v.entityType, v.kind, about.Kind)}
			}
			v.encoding = about.Encoding
		}
		v.kind = about.Kind
	}
	v.sameState = manifest.SameState(v.tried.module.Manifest(), v.serving.module.Manifest(), v.entityType)
	v.snapshotsOf, v.served = t.Snapshots.Of, t
	v.serving.batches = paced
	v.tried.vary(1)
	return t.Fits(ctx, v.tried.module)
}

// bound is the type as it is served here, once this node has heard of the
// binding that is asked for, or has had the time to.
func (v *verifier) bound(ctx context.Context) (*modules.Served, error) {
	t := v.Types.Served(v.entityType)
	if v.revision == 0 || t != nil && t.Revision == v.revision {
		return t, nil
	}
	waiting, cancel := context.WithTimeout(ctx, bindingWait)
	defer cancel()
	if err := v.Types.Await(waiting, v.revision); err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return v.Types.Served(v.entityType), nil
}

// each calls visit with the entities of the shard that exist, by id.
func (v *verifier) each(ctx context.Context, visit func(sharding.EntityID) error) error {
	for after := ""; ; {
		page, err := v.Machine.Page(v.shard, eventlog.PageQuery{Type: v.entityType, After: after, Limit: verifyPage, Looks: 16 * verifyPage})
		if err != nil {
			return err
		}
		for i := range page.Entities {
			if err := errors.Join(ctx.Err(), visit(page.Entities[i].Entity)); err != nil {
				return err
			}
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

// verify replays one entity.
func (v *verifier) verify(ctx context.Context, id sharding.EntityID, tell func(Verified) error) error {
	head, err := v.Machine.Info(v.shard, id)
	if err != nil || head.Sequence == 0 {
		return err
	}
	var base *journal.Snapshot
	out, err := v.settled(ctx, id, head.Sequence, nil)
	if errors.Is(err, errCut) {
		// What is left begins with the snapshot that the module that serves loads.
		if base, err = v.Machine.Snapshot(ctx, v.shard, id, v.served.SnapshotUse, head.Sequence+1); base != nil && err == nil {
			out, err = v.settled(ctx, id, head.Sequence, base)
		} else if err == nil {
			out = Verified{Cut: true}
		}
	}
	if err == nil && out.Difference != "" && v.kind != manifest.DurableState && out.Events <= eachEvents && (v.told == nil || !v.told()) {
		// Once more, with a look after each event: where does it begin?
		v.close()
		if first, again := v.replay(ctx, id, head.Sequence, base, true); again == nil && first.Difference != "" {
			out = first
		}
	}
	if err == nil && out.Difference != "" && !out.Fault && (v.told == nil || !v.told()) {
		err = v.explain(ctx, id, head.Sequence, base, &out)
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err // a guest whose call was interrupted shows no difference
	}
	if v.sameState && out.Difference == "" && !out.Cut && !out.Uncompared {
		if err := v.snapshots(ctx, id, head.Sequence, &out); err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	if out.EntityID = id.ID; out.Fault {
		out.EventType = v.eventType(ctx, id, out.At)
	}
	return tell(out)
}

// snapshots has both modules go on from each snapshot that the one that serves
// loads, and compares what they come to: the other says that it loads the same.
func (v *verifier) snapshots(ctx context.Context, id sharding.EntityID, end journal.Sequence, out *Verified) error {
	for _, module := range slices.Concat(v.snapshotsOf, []journal.Digest{v.serving.digest}) {
		for below := end + 1; ; {
			snap, err := v.Machine.Snapshot(ctx, v.shard, id, journal.SnapshotsBy(module), below)
			if err != nil || snap == nil {
				if err != nil {
					return err
				}
				break
			}
			below = snap.Sequence
			from, err := v.settled(ctx, id, end, snap)
			if err != nil {
				return err
			}
			if from.Difference != "" {
				out.At, out.Fault, out.Difference = from.At, from.Fault, fmt.Sprintf("from the snapshot of event %d, by the module before: %s", snap.Sequence, from.Difference)
				return nil
			}
		}
	}
	return nil
}

// settled is replay, without what the entities before have left in the
// instances: where a module fails that has had others, it has another go.
func (v *verifier) settled(ctx context.Context, id sharding.EntityID, end journal.Sequence, base *journal.Snapshot) (Verified, error) {
	tried, serving := v.tried.guest != nil, v.serving.guest != nil
	out, err := v.replay(ctx, id, end, base, false)
	if err == nil && (out.Fault && tried || out.Uncompared && serving) {
		v.close()
		return v.replay(ctx, id, end, base, false)
	}
	return out, err
}

// replay lets both modules evolve the entity's state up to a sequence, from the
// base or from the first event, and compares what they come to: after each
// event, or in the end. It is errCut where the first events of a life are not
// there.
func (v *verifier) replay(ctx context.Context, id sharding.EntityID, end journal.Sequence, base *journal.Snapshot, stepwise bool) (Verified, error) {
	var out Verified
	v.out, v.stepwise = &out, stepwise
	w := walk{id: id, to: v, durable: v.kind == manifest.DurableState}
	err := v.through(ctx, &w, end, base)
	if errors.Is(err, errDiffers) {
		err = nil
	}
	out.Events = w.events
	out.Uncompared = out.Difference == "" && !v.serving.loaded
	return out, err
}

// through is replay, until something differs.
func (v *verifier) through(ctx context.Context, w *walk, end journal.Sequence, base *journal.Snapshot) error {
	if err := v.pace.spend(ctx, entityCosts); err != nil {
		return err
	}
	var from journal.Sequence
	var state given
	if base != nil {
		from, state.state = base.Sequence, base.State
		var err error
		if state.version, err = v.versionOf(ctx, base.Module); err != nil {
			return err
		}
	}
	v.id = w.id
	if err := v.start(ctx, w.id, from, state); err != nil {
		return err
	}
	if err := w.read(ctx, v.Machine, v.shard, from, end); err != nil {
		return err
	}
	if err := v.compare(w.at); err != nil {
		return err
	}
	return v.reload(ctx, w.id, w.at)
}

// unknownVersion is of states in the snapshots of a module that was removed.
const unknownVersion = -1

// versionOf is the version of the states in a module's snapshots; 0 if it does
// not matter.
func (v *verifier) versionOf(ctx context.Context, digest journal.Digest) (int, error) {
	if v.kind != manifest.EventSourced || !v.tried.states.Migrates() && !v.serving.states.Migrates() {
		return 0, nil
	}
	m, err := v.Modules.Module(ctx, digest, "")
	if errors.Is(err, request.ErrUnknownModule) {
		return unknownVersion, nil
	}
	if err != nil {
		return 0, err
	}
	about, _, ok := m.Manifest().Type(v.entityType)
	if !ok {
		return unknownVersion, nil
	}
	states := about.States()
	return states.Version(), nil
}

// migrates reports that the tried module reads the states of the one that
// serves as those of an earlier version.
func (v *verifier) migrates() (from int, ok bool) {
	from = v.serving.states.Version()
	ok = v.kind == manifest.EventSourced && v.tried.states.Migrates() && v.tried.states.Given(from) != 0 && v.tried.states.Check(from) == nil
	return from, ok
}

// start implements folder, for both modules.
func (v *verifier) start(ctx context.Context, id sharding.EntityID, at journal.Sequence, from given) error {
	if err := v.tried.start(ctx, id, at, v.givenTo(&v.tried, from)); err != nil {
		return v.differs(at, err)
	}
	// What the serving module cannot do is no fault of the other.
	return v.serving.spoilt(v.serving.start(ctx, id, at, v.givenTo(&v.serving, from)))
}

// givenTo is a state as a module is given it. One whose event-sourced type lists
// no versions gets states as they are: that it reads them is compared.
func (v *verifier) givenTo(f *fold, from given) given {
	if v.kind == manifest.EventSourced && !f.states.Migrates() {
		from.version = 0
	}
	return from
}

// add implements folder.
func (v *verifier) add(ctx context.Context, e event) error {
	if err := v.pace.spend(ctx, 1); err != nil {
		return err
	}
	if err := v.tried.add(ctx, e); err != nil {
		return v.differs(e.sequence, err)
	}
	if v.serving.loaded {
		if err := v.serving.spoilt(v.serving.add(ctx, e)); err != nil {
			return err
		}
	}
	if v.stepwise {
		if err := v.flush(); err != nil {
			return err
		}
		return v.compare(e.sequence)
	}
	return nil
}

// flush implements folder.
func (v *verifier) flush() error {
	if err := v.tried.flush(); err != nil {
		return v.differs(v.tried.last, err)
	}
	if !v.serving.loaded {
		return nil
	}
	return v.serving.spoilt(v.serving.flush())
}

// compare looks whether both states are the same. If the tried module migrates
// those of the one that serves, its state must be what it makes of that one's:
// to evolve and then migrate comes to the same as to migrate and then evolve.
func (v *verifier) compare(at journal.Sequence) error {
	if !v.serving.loaded {
		return nil
	}
	now, err := v.serving.snapshot()
	if err != nil {
		return v.serving.spoilt(err)
	}
	now = bytes.Clone(now)
	other := ", by the module that serves "
	if version, ok := v.migrates(); ok {
		if now, err = v.tried.migrate(v.id, at, given{now, version}); err != nil {
			return v.differs(at, fmt.Errorf("today's state of the module that serves: %w", err))
		}
		other = ", migrated from that of the module that serves "
	}
	then, err := v.tried.snapshot()
	if err != nil {
		return v.differs(at, err)
	}
	if !v.same(now, then) {
		if v.alike {
			other = ", and "
		}
		v.out.At, v.out.Difference = at, "the state is "+v.shown(then)+other+v.shown(now)
		if v.encoding == manifest.JSON {
			v.out.Patch, v.out.PatchCut = patchOf(now, then)
		}
		return errDiffers
	}
	return nil
}

// reload has the module write its state twice, and load what it wrote: the
// bytes must be the same.
func (v *verifier) reload(ctx context.Context, id sharding.EntityID, at journal.Sequence) error {
	made, err := v.tried.snapshot()
	if err != nil {
		return v.differs(at, err)
	}
	made = bytes.Clone(made)
	again, err := v.tried.snapshot()
	if err != nil {
		return v.differs(at, err)
	}
	if !bytes.Equal(made, again) {
		return v.fault(at, "it writes one state as "+v.shown(made)+" and as "+v.shown(again))
	}
	if err := v.tried.start(ctx, id, at, given{state: made}); err != nil {
		return v.differs(at, fmt.Errorf("its own snapshot: %w", err))
	}
	again, err = v.tried.snapshot()
	switch {
	case err != nil:
		return v.differs(at, err)
	case !bytes.Equal(made, again):
		return v.fault(at, "of the snapshot "+v.shown(made)+" it makes the state "+v.shown(again))
	}
	return nil
}

// fault notes what the module breaks or cannot do, whatever the other makes.
func (v *verifier) fault(at journal.Sequence, what string) error {
	v.out.At, v.out.Fault, v.out.Difference = at, true, what
	return errDiffers
}

// differs notes what the module cannot do; other errors are passed on.
func (v *verifier) differs(at journal.Sequence, err error) error {
	if !guestFails(err) {
		return err
	}
	return v.fault(at, withWords(err))
}

// maxWords bounds what a difference quotes of what a guest wrote.
const maxWords = 512

// withWords is the text of a failure and the end of what the guest wrote in the
// call that failed, such as the text of a panic: "trap: unreachable" alone
// explains nothing. Whoever verifies sees the states themselves, so this is
// not subject to expose-guest-errors.
func withWords(err error) string {
	var w interface{ LastWords() string }
	if !errors.As(err, &w) || strings.Contains(err.Error(), w.LastWords()) {
		return err.Error()
	}
	words := w.LastWords()
	if len(words) > maxWords {
		words = "..." + strings.ToValidUTF8(words[len(words)-maxWords:], "")
	}
	return err.Error() + "; the guest wrote: " + words
}

// patchOf is what turns one state into another, as far as it is told.
func patchOf(was, is []byte) (patch []PatchOperation, cut bool) {
	patch, whole, _ := JSONPatch(was, is, maxPatch)
	bytes := 0
	for i, o := range patch {
		value, err := json.Marshal(o.Is)
		if bytes += len(o.Path) + len(value); bytes > maxPatchBytes || err != nil {
			return patch[:i], true
		}
	}
	return patch, !whole
}

// same compares two states: as JSON values where they are, else as bytes.
func (v *verifier) same(a, b []byte) bool {
	return same(a, b, v.encoding == manifest.JSON)
}

func same(a, b []byte, asJSON bool) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if !asJSON {
		return false
	}
	one, ok := canonical(a)
	two, other := canonical(b)
	return ok && other && bytes.Equal(one, two)
}

func canonical(state []byte) ([]byte, bool) {
	text, err := jsontext.Canonical(state)
	return text, err == nil
}

// shown is a state for people: as JSON text, or quoted.
func (v *verifier) shown(state []byte) string {
	cut := state[:min(len(state), shownStateBytes)]
	text := fmt.Sprintf("%q", cut)
	if v.encoding == manifest.JSON && utf8.Valid(state) {
		text = strings.ToValidUTF8(string(cut), "")
	}
	if len(cut) < len(state) {
		text += fmt.Sprintf("... of %d bytes", len(state))
	}
	return text
}

// VerifyRequest says what to replay with which module.
type VerifyRequest struct {
	Shard      sharding.ShardID
	EntityType string
	Digest     journal.Digest
	// Sample entities are drawn by Draw, a random number below its argument; 0
	// is all of them.
	Sample int
	Draw   func(below int) int
	// Revision is that of the binding that is compared with; 0: the one that
	// serves.
	Revision uint64
	// Told, where it is set, reports that no further difference is told: where one
	// begins is looked for no more.
	Told func() bool
}

// Verified is what came of one entity.
type Verified struct {
	EntityID string
	Events   uint64
	// Cut: it was not replayed, because its first events were cut. Uncompared:
	// the module that serves the type could not replay it.
	Cut, Uncompared bool
	// Difference is empty where the module agrees with the one that serves the
	// type; At is the event at which it shows. Fault says that the module failed.
	Difference string
	At         journal.Sequence
	Fault      bool
	EventType  string // of a fault, where it is one event's
	// Patch turns the state by the module that serves into the other, where both
	// are JSON; PatchCut says that it is longer than that.
	Patch    []PatchOperation
	PatchCut bool
}
