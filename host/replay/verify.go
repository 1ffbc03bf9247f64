package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/abi/manifest"
	"github.com/hostd/hostd/host/engine"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/host/rpc"
	"github.com/hostd/hostd/host/rpc/codec"
	"github.com/hostd/hostd/host/rpc/verification"
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
)

// Verify replays entities of one shard with a module and with the one that
// serves their type, and tells what came of each. One runs at a time on a node;
// others wait as long as ctx. It ends with the first error of tell.
func (r *Replays) Verify(ctx context.Context, q verification.Request, tell func(verification.Entity) error) error {
	select {
	case r.verifying <- struct{}{}:
		defer func() { <-r.verifying }()
	case <-ctx.Done():
		return ctx.Err()
	}
	v := &verifier{Options: r.opts, shard: q.Shard, entityType: q.EntityType, revision: q.Revision, told: q.Told}
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
	revision   uint64      // of the binding that is compared with; 0: any
	told       func() bool // no further difference is told; nil: all are
	sameState  bool        // both modules say the same version of the state
	// snapshotsOf are modules whose snapshots the one that serves loads.
	snapshotsOf []journal.Digest
	kind        manifest.Kind
	encoding    manifest.Encoding

	tried, serving fold
	frames         []byte
}

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
	t, err := v.served(ctx)
	if err != nil {
		return err
	}
	if t == nil {
		return request.ErrModuleNotLoaded
	}
	if v.revision != 0 && v.revision != t.Revision {
		return &rpc.RefusedError{Reason: fmt.Sprintf("%s is served under revision %d, not %d", v.entityType, t.Revision, v.revision)}
	}
	if t.Transient {
		return &rpc.RefusedError{Reason: "the entities of this type keep no state: there is nothing to replay"}
	}
	for _, f := range []struct {
		*fold
		digest journal.Digest
	}{{&v.tried, digest}, {&v.serving, t.Digest}} {
		m, err := v.Modules.Module(ctx, f.digest, "")
		if err != nil {
			return err
		}
		about, index, ok := m.Manifest().Type(v.entityType)
		if !ok {
			return &request.InvalidModuleError{Reason: fmt.Sprintf("the module does not serve entity type %q", v.entityType)}
		}
		f.module, f.fold.digest, f.index = m, f.digest, uint32(index)
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
	v.snapshotsOf = t.SnapshotsOf
	return t.Fits(ctx, v.tried.module)
}

// served is the type as it is served here, once this node has heard of the
// binding that is asked for, or has had the time to.
func (v *verifier) served(ctx context.Context) (*modules.Served, error) {
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
func (v *verifier) verify(ctx context.Context, id sharding.EntityID, tell func(verification.Entity) error) error {
	head, err := v.Machine.Info(v.shard, id)
	if err != nil || head.Sequence == 0 {
		return err
	}
	var base *journal.Snapshot
	out, err := v.settled(ctx, id, head.Sequence, nil)
	if errors.Is(err, errCut) {
		// What is left begins with a snapshot of the module that serves.
		if base, err = v.Machine.Snapshot(ctx, v.shard, id, v.serving.digest, head.Sequence+1); base != nil && err == nil {
			out, err = v.settled(ctx, id, head.Sequence, base)
		} else if err == nil {
			out = verification.Entity{Cut: true}
		}
	}
	if err == nil && out.Difference != "" && v.kind != manifest.DurableState && out.Events <= eachEvents && (v.told == nil || !v.told()) {
		// Once more, with a look after each event: where does it begin?
		v.close()
		if first, again := v.replay(ctx, id, head.Sequence, base, true); again == nil && first.Difference != "" {
			out = first
		}
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
func (v *verifier) snapshots(ctx context.Context, id sharding.EntityID, end journal.Sequence, out *verification.Entity) error {
	for _, module := range slices.Concat(v.snapshotsOf, []journal.Digest{v.serving.digest}) {
		for below := end + 1; ; {
			snap, err := v.Machine.Snapshot(ctx, v.shard, id, module, below)
			if err != nil || snap == nil || snap.Module != module {
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
func (v *verifier) settled(ctx context.Context, id sharding.EntityID, end journal.Sequence, base *journal.Snapshot) (verification.Entity, error) {
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
func (v *verifier) replay(ctx context.Context, id sharding.EntityID, end journal.Sequence, base *journal.Snapshot, each bool) (verification.Entity, error) {
	var out verification.Entity
	var from journal.Sequence
	var snapshot []byte
	if base != nil {
		from, snapshot = base.Sequence, base.State
	}
	v.frames = v.frames[:0]
	if err := v.restart(ctx, id, from, snapshot, &out); err != nil || out.Difference != "" {
		return out, err
	}
	missing := false // the first events of the life that is read
	flush := func(at journal.Sequence) error {
		if len(v.frames) == 0 || out.Difference != "" {
			return nil
		}
		err := v.evolve(at, &out)
		if v.frames = v.frames[:0]; err == nil && each {
			err = v.compare(at, &out)
		}
		return err
	}
	at := from
	var state []byte
	read := func(_ journal.Position, r *journal.Record) error {
		for i := range r.Events {
			sequence := r.Expected + journal.Sequence(i) + 1
			if sequence > end || out.Difference != "" {
				return errDone
			}
			if sequence <= from || r.Tombstone(i) || missing && v.kind != manifest.DurableState {
				continue
			}
			out.Events++
			at = sequence
			if v.kind == manifest.DurableState {
				state = append(state[:0], r.Events[i].Payload...)
				continue
			}
			v.frames = abi.AppendInputEvent(v.frames, uint64(sequence), r.RecordedAt, r.Events[i].Type, r.Events[i].Payload)
			if each || len(v.frames) >= batchBytes {
				if err := flush(sequence); err != nil {
					return err
				}
			}
		}
		if r.Flags&journal.FlagTombstone == 0 || r.Last() > end || r.Last() <= from {
			return ctx.Err()
		}
		// The next life begins with the initial state.
		if err := flush(at); err != nil || out.Difference != "" {
			return err
		}
		missing = false
		return v.restart(ctx, id, r.Last(), nil, &out)
	}
	err := v.Machine.Read(ctx, v.shard, id, from+1, read)
	if cut := (*journal.CutError)(nil); errors.As(err, &cut) {
		missing = true
		err = v.Machine.Read(ctx, v.shard, id, cut.First, read)
	}
	if err != nil && !errors.Is(err, errDone) {
		return out, err
	}
	if missing && v.kind != manifest.DurableState {
		return out, errCut
	}
	if v.kind == manifest.DurableState && at > 0 {
		err = v.restart(ctx, id, at, state, &out)
	} else {
		err = flush(at)
	}
	if err == nil && out.Difference == "" {
		err = v.compare(at, &out)
	}
	if err == nil && out.Difference == "" {
		err = v.reload(ctx, id, at, &out)
	}
	out.Uncompared = out.Difference == "" && !v.serving.loaded
	return out, err
}

// restart has both modules make the state of a sequence: from a snapshot, or
// the initial one where that is nil.
func (v *verifier) restart(ctx context.Context, id sharding.EntityID, at journal.Sequence, snapshot []byte, out *verification.Entity) error {
	if err := v.tried.start(ctx, id, at, snapshot); err != nil {
		return v.differs(at, out, err)
	}
	// What the serving module cannot do is no fault of the other.
	return v.serving.spoilt(v.serving.start(ctx, id, at, snapshot))
}

// evolve applies the frames.
func (v *verifier) evolve(at journal.Sequence, out *verification.Entity) error {
	if err := v.tried.guest.Apply(handle, v.frames); err != nil {
		v.tried.close()
		return v.differs(at, out, err)
	}
	if !v.serving.loaded {
		return nil
	}
	return v.serving.spoilt(v.serving.guest.Apply(handle, v.frames))
}

// compare looks whether both states are the same.
func (v *verifier) compare(at journal.Sequence, out *verification.Entity) error {
	if out.Difference != "" || !v.serving.loaded {
		return nil
	}
	now, err := v.serving.guest.Snapshot(handle)
	if err != nil {
		return v.serving.spoilt(err)
	}
	now = bytes.Clone(now)
	then, err := v.tried.guest.Snapshot(handle)
	if err != nil {
		v.tried.close()
		return v.differs(at, out, err)
	}
	if !v.same(now, then) {
		out.At, out.Difference = at, "the state is "+v.shown(then)+", by the module that serves "+v.shown(now)
	}
	return nil
}

// reload has the module load the snapshot that it made.
func (v *verifier) reload(ctx context.Context, id sharding.EntityID, at journal.Sequence, out *verification.Entity) error {
	made, err := v.tried.guest.Snapshot(handle)
	if err != nil {
		v.tried.close()
		return v.differs(at, out, err)
	}
	made = bytes.Clone(made)
	if err := v.tried.start(ctx, id, at, made); err != nil {
		return v.differs(at, out, fmt.Errorf("its own snapshot: %w", err))
	}
	again, err := v.tried.guest.Snapshot(handle)
	switch {
	case err != nil:
		v.tried.close()
		return v.differs(at, out, err)
	case !v.same(made, again):
		out.At, out.Difference = at, "of the snapshot "+v.shown(made)+" it makes the state "+v.shown(again)
	}
	return nil
}

// differs notes what the module cannot do; other errors are passed on.
func (v *verifier) differs(at journal.Sequence, out *verification.Entity, err error) error {
	var fault *engine.Fault
	if !errors.As(err, &fault) && !errors.Is(err, errRefused) {
		return err
	}
	out.At, out.Fault, out.Difference = at, true, err.Error()
	return nil
}

// same compares two states: as JSON values where they are, else as bytes.
func (v *verifier) same(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	if v.encoding != manifest.JSON {
		return false
	}
	one, ok := canonical(a)
	two, other := canonical(b)
	return ok && other && bytes.Equal(one, two)
}

func canonical(state []byte) ([]byte, bool) {
	value, ok := codec.Parse(state)
	if !ok {
		return nil, false
	}
	text, err := codec.AppendCanonical(nil, value)
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
