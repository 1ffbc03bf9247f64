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
	// eachEvents bounds the histories that are searched for the first differing
	// event. For longer histories the last event is reported.
	eachEvents = 10_000
	// activationWait bounds the wait for an activation that this node has not
	// applied yet.
	activationWait = 10 * time.Second
	// shownStateBytes is how much of a state a difference shows.
	shownStateBytes = 160
	// maxPatch and maxPatchBytes bound the patch of a difference.
	maxPatch, maxPatchBytes = 100, 4 << 10
)

// Verify replays entities of one shard with a module and with the module that
// serves their type, and passes each result to tell. Only one Verify runs at
// a time on a node; others wait until ctx ends. It stops at the first error
// of tell.
func (r *Replays) Verify(ctx context.Context, q VerifyRequest, tell func(Verified) error) error {
	select {
	case r.verifying <- struct{}{}:
		defer func() { <-r.verifying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	v := &verifier{Options: r.opts, pace: r.pace, shard: q.Shard, entityType: q.EntityType, revision: q.Revision, quiet: q.Quiet}
	defer v.close()
	defer context.AfterFunc(ctx, v.interrupt)()
	if err := v.open(ctx, q.Digest); err != nil {
		return err
	}
	if q.Sample == 0 {
		return v.each(ctx, func(id sharding.EntityID) error { return v.verify(ctx, id, tell) })
	}
	sample := drawn{size: q.Sample}
	err := v.each(ctx, func(id sharding.EntityID) error {
		sample.offer(id, q.Draw)
		return nil
	})
	for i := 0; err == nil && i < len(sample.ids); i++ {
		err = v.verify(ctx, sample.ids[i], tell)
	}
	return err
}

// verifier replays entities of one type and shard, one at a time, with two
// modules: the tried module and the serving module. Both must reach the
// same state.
//
// The two replays differ on purpose: the tried module gets the events in
// other batches, another clock and other random numbers. So if its state
// depends on one of these, the replays differ. Because a difference alone
// does not show which module is to blame, explain then compares each module
// with itself. If the tried module disagrees with itself, it is at fault; if
// the serving module disagrees with itself, nothing can be compared.
//
// States are compared at the end of a history, because each comparison costs
// a snapshot of both guests. Only if they differ is the entity replayed again
// with a comparison after each event, to find the first event that matters.
// Instances are reused for the next entity, because creating one is
// expensive. A failure in a reused instance is therefore repeated in a fresh
// instance before it counts.
type verifier struct {
	Options
	shard      sharding.ShardID
	entityType string
	pace       *pace       // nil: unlimited
	revision   uint64      // required revision of the serving module's activation; 0: any
	quiet      func() bool // further differences are not reported; nil: all are
	sameState  bool        // both modules declare the same state version
	// snapshotsOf are the modules whose snapshots the serving module loads.
	snapshotsOf []journal.Digest
	kind        manifest.Kind
	encoding    manifest.Encoding
	served      *modules.Served

	tried, serving replayer
	id             sharding.EntityID // entity being replayed
	stepwise       bool              // compare the states after each event
	alike          bool              // both are the same module
	out            *Verified         // result of the current entity
}

// errDiffers ends the replay of an entity after a difference was recorded.
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

// open loads both modules.
func (v *verifier) open(ctx context.Context, digest journal.Digest) error {
	t, err := v.servingType(ctx)
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
		return &status.RefusedError{Reason: "the entity type is transient: there is nothing to replay"}
	}
	for _, f := range []struct {
		*replayer
		digest journal.Digest
		get    func(context.Context, journal.Digest, sharding.NodeID) (*guest.Module, error)
	}{{&v.tried, digest, v.Modules.ToRun}, {&v.serving, t.Digest, v.Modules.Module}} {
		m, err := f.get(ctx, f.digest, "")
		if err != nil {
			return err
		}
		about, err := f.use(m, f.digest, v.entityType)
		if err != nil {
			return err
		}
		f.setBounds(t)
		if f.replayer == &v.serving {
			if v.kind != about.Kind {
				return &request.InvalidModuleError{Reason: fmt.Sprintf("the module declares %q as %s, but it is %s", v.entityType, v.kind, about.Kind)}
			}
			v.encoding = about.Encoding
		}
		v.kind = about.Kind
	}
	v.sameState = manifest.SameState(v.tried.module.Manifest(), v.serving.module.Manifest(), v.entityType)
	v.snapshotsOf, v.served = t.Snapshots.Modules, t
	v.serving.batches = paced
	v.tried.vary(1)
	return t.CheckMemory(ctx, v.tried.module)
}

// servingType returns how this node serves the type. It waits up to
// activationWait for the requested revision.
func (v *verifier) servingType(ctx context.Context) (*modules.Served, error) {
	t := v.Types.ServedType(v.entityType)
	if v.revision == 0 || t != nil && t.Revision == v.revision {
		return t, nil
	}
	waiting, cancel := context.WithTimeout(ctx, activationWait)
	defer cancel()
	if err := v.Types.Await(waiting, v.revision); err != nil && ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return v.Types.ServedType(v.entityType), nil
}

// each calls visit for the existing entities of the shard, in the order of
// their ids.
func (v *verifier) each(ctx context.Context, visit func(sharding.EntityID) error) error {
	return eachEntity(ctx, v.Machine, v.shard, v.entityType, "", func(e *eventlog.Info) error { return visit(e.Entity) })
}

// verify replays one entity and reports the result.
func (v *verifier) verify(ctx context.Context, id sharding.EntityID, tell func(Verified) error) error {
	head, err := v.Machine.Info(v.shard, id)
	if err != nil || head.Sequence == 0 {
		return err
	}
	var base *journal.Snapshot
	var out Verified
	if v.kind == manifest.Workflow {
		out, err = v.fromCheckpoint(ctx, id, head.Sequence)
	} else {
		out, err = v.replayClean(ctx, id, head.Sequence, nil)
	}
	if errors.Is(err, errTruncated) {
		// The remaining history begins with a snapshot that the serving module loads.
		if base, err = v.Machine.Snapshot(ctx, v.shard, id, v.served.SnapshotUse, head.Sequence+1); base != nil && err == nil {
			out, err = v.replayClean(ctx, id, head.Sequence, base)
		} else if err == nil {
			out = Verified{Truncated: true}
		}
	}
	if err == nil && out.Difference != "" && v.kind == manifest.EventSourced && out.Events <= eachEvents && (v.quiet == nil || !v.quiet()) {
		// Repeat it with a comparison after each event to find where the states
		// diverge.
		v.close()
		if first, again := v.replay(ctx, id, head.Sequence, base, true); again == nil && first.Difference != "" {
			out = first
		}
	}
	if err == nil && out.Difference != "" && !out.Fault && (v.quiet == nil || !v.quiet()) {
		err = v.explain(ctx, id, head.Sequence, base, &out)
	}
	if err = errors.Join(err, ctx.Err()); err != nil {
		return err // an interrupted guest proves no difference
	}
	if v.sameState && out.Difference == "" && !out.Truncated && !out.Uncompared {
		if err := v.snapshots(ctx, id, head.Sequence, &out); err != nil {
			return errors.Join(err, ctx.Err())
		}
	}
	if out.EntityID = id.ID; out.Fault {
		out.EventType = eventType(ctx, v.Machine, v.shard, id, out.At)
	}
	return tell(out)
}

// snapshots lets both modules continue from each snapshot that the serving
// module loads, and compares the results. It matters because a module that
// declares the same state version loads the same snapshots.
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
			from, err := v.replayClean(ctx, id, end, snap)
			if err != nil {
				return err
			}
			if from.Difference != "" {
				out.At, out.Fault, out.Difference = from.At, from.Fault, fmt.Sprintf("from the snapshot at event %d, by the previous module: %s", snap.Sequence, from.Difference)
				return nil
			}
		}
	}
	return nil
}

// fromCheckpoint is replayClean for a run, from its last checkpoint if it has
// one. Events before the checkpoint do not matter, because no module has to
// replay them any more. If a newer checkpoint truncates the events that are
// being read, the replay begins with that newer checkpoint.
func (v *verifier) fromCheckpoint(ctx context.Context, id sharding.EntityID, end journal.Sequence) (out Verified, err error) {
	for range checkpointTries {
		base, err := v.Machine.Snapshot(ctx, v.shard, id, journal.SnapshotsBy(journal.NoModule), end+1)
		if err != nil {
			return out, err
		}
		if out, err = v.replayClean(ctx, id, end, base); !errors.Is(err, errTruncated) {
			return out, err
		}
	}
	return Verified{Truncated: true}, nil
}

// checkpointTries bounds how often a replay of a run begins again because a
// newer checkpoint has truncated its events.
const checkpointTries = 4

// replayClean is replay, without leftovers of previous entities: if a module fails
// in an instance that has held other entities, the replay is repeated in fresh
// instances.
func (v *verifier) replayClean(ctx context.Context, id sharding.EntityID, end journal.Sequence, base *journal.Snapshot) (Verified, error) {
	tried, serving := v.tried.guest != nil, v.serving.guest != nil
	out, err := v.replay(ctx, id, end, base, false)
	if err == nil && (out.Fault && tried || out.Uncompared && serving) {
		v.close()
		return v.replay(ctx, id, end, base, false)
	}
	return out, err
}

// replay lets both modules compute the entity's state up to a sequence, from
// base or from the first event, and compares the results at the end or, if
// stepwise, after each event. The error is errTruncated if the first events of a life
// are missing.
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

// through is replay up to the first difference.
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

// unknownVersion is the state version of snapshots of a removed module.
const unknownVersion = -1

// versionOf returns the version of the states in a module's snapshots, or 0
// if the version does not matter.
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

// migrates reports whether the tried module reads the serving module's states
// as an earlier version.
func (v *verifier) migrates() (from int, ok bool) {
	from = v.serving.states.Version()
	ok = v.kind == manifest.EventSourced && v.tried.states.Migrates() && v.tried.states.InputVersion(from) != 0 && v.tried.states.Check(from) == nil
	return from, ok
}

// start implements stateBuilder, for both modules.
func (v *verifier) start(ctx context.Context, id sharding.EntityID, at journal.Sequence, from given) error {
	if err := v.tried.start(ctx, id, at, v.givenTo(&v.tried, from)); err != nil {
		return v.differs(at, err)
	}
	// A failure of the serving module is not a fault of the tried module.
	return v.serving.spoilt(v.serving.start(ctx, id, at, v.givenTo(&v.serving, from)))
}

// givenTo returns a state as a module gets it. An event-sourced type that
// lists no versions gets states without one, and the comparison shows whether
// the module reads them.
func (v *verifier) givenTo(f *replayer, from given) given {
	if v.kind == manifest.EventSourced && !f.states.Migrates() {
		from.version = 0
	}
	return from
}

// add implements stateBuilder.
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

// flush implements stateBuilder.
func (v *verifier) flush() error {
	if err := v.tried.flush(); err != nil {
		return v.differs(v.tried.last, err)
	}
	if !v.serving.loaded {
		return nil
	}
	return v.serving.spoilt(v.serving.flush())
}

// compare compares the two states. If the tried module migrates states of the
// serving module, it compares the tried state with the migrated serving state:
// replaying and then migrating must give the same result as migrating and then
// replaying.
func (v *verifier) compare(at journal.Sequence) error {
	if !v.serving.loaded {
		return nil
	}
	now, err := v.serving.snapshot()
	if err != nil {
		return v.serving.spoilt(err)
	}
	now = bytes.Clone(now)
	other := ", with the active module "
	if version, ok := v.migrates(); ok {
		if now, err = v.tried.migrate(v.id, at, given{now, version}); err != nil {
			return v.differs(at, fmt.Errorf("current state of the active module: %w", err))
		}
		other = ", migrated from the state of the active module "
	}
	then, err := v.tried.snapshot()
	if err != nil {
		return v.differs(at, err)
	}
	if !v.same(now, then) {
		if v.alike {
			other = ", and "
		}
		v.out.At, v.out.Difference = at, "the state is "+v.formatState(then)+other+v.formatState(now)
		if v.encoding == manifest.JSON {
			v.out.Patch, v.out.PatchTruncated = patchOf(now, then)
		}
		return errDiffers
	}
	return nil
}

// reload lets the module write its state twice and load what it wrote. All the
// bytes must be equal.
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
		return v.recordFault(at, "the module encodes the same state as "+v.formatState(made)+" and as "+v.formatState(again))
	}
	if v.kind == manifest.Workflow {
		return nil // runs are replayed from their first event
	}
	if err := v.tried.start(ctx, id, at, given{state: made}); err != nil {
		return v.differs(at, fmt.Errorf("load its own snapshot: %w", err))
	}
	again, err = v.tried.snapshot()
	switch {
	case err != nil:
		return v.differs(at, err)
	case !bytes.Equal(made, again):
		return v.recordFault(at, "from the snapshot "+v.formatState(made)+" the module computes the state "+v.formatState(again))
	}
	return nil
}

// recordFault records that the tried module violates a rule or fails,
// independently of the serving module.
func (v *verifier) recordFault(at journal.Sequence, what string) error {
	v.out.At, v.out.Fault, v.out.Difference = at, true, what
	return errDiffers
}

// differs records a failure of the tried module's guest. It returns all other
// errors.
func (v *verifier) differs(at journal.Sequence, err error) error {
	if !guestFails(err) {
		return err
	}
	return v.recordFault(at, withWords(err))
}

// maxWords bounds the guest output quoted in a difference, in bytes.
const maxWords = 512

// withWords returns the text of a failure with the end of what the guest wrote
// in the failed call, such as the text of a panic, because "trap: unreachable"
// alone explains nothing. It ignores expose-guest-errors, because callers of a
// verification see the states themselves anyway.
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

// patchOf returns the operations that turn one state into another, within the
// bounds.
func patchOf(was, is []byte) (patch []PatchOperation, cut bool) {
	patch, whole, _ := jsonPatch(was, is, maxPatch)
	bytes := 0
	for i, o := range patch {
		value, err := json.Marshal(o.Is)
		if bytes += len(o.Path) + len(value); bytes > maxPatchBytes || err != nil {
			return patch[:i], true
		}
	}
	return patch, !whole
}

// same compares two states: as JSON values if the type uses JSON, otherwise as
// bytes.
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

// formatState formats a state for people: as JSON text, or quoted.
func (v *verifier) formatState(state []byte) string {
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

// VerifyRequest selects the entities and the module of a Verify.
type VerifyRequest struct {
	Shard      sharding.ShardID
	EntityType string
	Digest     journal.Digest
	// Sample is the number of entities to draw, or 0 for all. Draw returns a
	// random number below its argument.
	Sample int
	Draw   func(below int) int
	// Revision is the required revision of the serving module's activation; 0
	// accepts the current one.
	Revision uint64
	// Quiet, if set, reports whether further differences will not be shown; then
	// Verify does not search for where they begin.
	Quiet func() bool
}

// Verified is the result for one entity.
type Verified struct {
	EntityID string
	Events   uint64
	// Truncated: the entity was not replayed, because its first events are gone.
	// Uncompared: the module that serves the type could not replay it.
	Truncated, Uncompared bool
	// Difference is empty if both modules agree; At is the event at which they
	// diverge. Fault reports that the tried module failed.
	Difference string
	At         journal.Sequence
	Fault      bool
	EventType  string // type of the event that a fault is about, if it is about one event
	// Patch turns the serving module's state into the tried module's state, if
	// both are JSON. PatchTruncated reports that the patch is incomplete.
	Patch          []PatchOperation
	PatchTruncated bool
}
