package replay

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/hostd/hostd/abi"
	"github.com/hostd/hostd/host/guest"
	"github.com/hostd/hostd/host/modules"
	"github.com/hostd/hostd/host/modules/trial"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/journal"
	"github.com/hostd/hostd/journal/eventlog"
	"github.com/hostd/hostd/sharding"
)

const (
	// shadowTime bounds the time for one command, without the pace.
	shadowTime = 10 * time.Second
	// reachTime bounds the wait for the events before a command, which may not be
	// committed yet when the command is decided. reachEvery is the polling
	// interval.
	reachTime  = 2 * time.Second
	reachEvery = 2 * time.Millisecond
	// shadowEvents bounds the events replayed for one command.
	shadowEvents = 10_000
	// shadowIdle is how long an idle instance is kept.
	shadowIdle = 10 * time.Second
	// openTime bounds one attempt to load a module. openAgain is the pause after a
	// failed attempt, and openLast the time after which a loaded module is loaded
	// again, because limits may have changed.
	openTime  = 30 * time.Second
	openAgain = 5 * time.Second
	openLast  = time.Minute
)

var (
	// errNotReached: the events before a command are not committed yet.
	errNotReached = errors.New("the events before the command are not committed")
	// errFar: computing the state would need too many events.
	errFar = errors.New("there are too many events to replay")
	// errOther: another leader has written other events meanwhile.
	errOther = errors.New("the command was executed after different events")
)

// Shadow lets shadow modules decide the queued commands, one at a time and
// outside of the executors, until ctx ends. The only effect of a decision is
// that the tally of the command's watch counts it.
func (r *Replays) Shadow(ctx context.Context) {
	s := &shadower{
		machine: r.opts.Machine, executors: r.opts.Executors, types: r.opts.Types, now: time.Now,
		pace: newPace(r.opts.Rate, r.opts.Executors),
	}
	s.run(ctx, r.opts.Types.Shadows().Queue())
}

// shadowTypes knows how modules would serve types.
type shadowTypes interface {
	// Beside returns how a module would serve a type.
	Beside(ctx context.Context, entityType string, digest journal.Digest) (*modules.Served, *guest.Module, error)
}

// shadower decides commands a second time, in its own instance. It belongs to
// one goroutine.
type shadower struct {
	machine   *eventlog.Machine
	executors executors
	types     shadowTypes
	now       func() time.Time
	pace      *pace

	watch    *trial.Watch    // the watch that the replayer is open for; nil: none
	served   *modules.Served // how its module would serve the type; nil: it could not be loaded
	tried    time.Time       // when it was last loaded
	replayer replayer
	replayed uint64 // events replayed for the last command
}

func (s *shadower) run(ctx context.Context, from *trial.Queue) {
	defer s.replayer.close()
	for {
		waiting, cancel := context.WithTimeout(ctx, shadowIdle)
		c, err := from.Take(waiting)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			s.leave()
		case !c.For.HasEnded():
			s.one(ctx, &c)
		}
	}
}

// leave releases the instance and the module.
func (s *shadower) leave() {
	s.replayer.close()
	s.replayer.module, s.replayer.most, s.watch, s.served = nil, 0, nil, nil
}

// one compares a command and counts the result.
func (s *shadower) one(ctx context.Context, c *trial.Command) {
	s.replayed = 0
	if !s.open(ctx, c) {
		c.For.Pass()
		return
	}
	within, cancel := context.WithTimeout(ctx, shadowTime)
	e, fuel, err := s.compare(within, c)
	cancel()
	switch {
	case ctx.Err() != nil:
		return
	case err != nil:
		c.For.Pass()
	default:
		c.For.Add(e, uint64(c.Fuel), uint64(fuel))
	}
	_ = s.pace.spend(ctx, int(s.replayed)+entityCosts) // spend fails only if ctx ends, and then run ends too
}

// open loads the module of a command's watch. If that fails, it returns false
// and puts the reason into the tally.
func (s *shadower) open(ctx context.Context, c *trial.Command) bool {
	lasts := openLast
	if s.served == nil {
		lasts = openAgain
	}
	if s.watch == c.For && s.now().Sub(s.tried) < lasts {
		return s.served != nil
	}
	s.leave()
	s.watch, s.tried = c.For, s.now()
	ctx, cancel := context.WithTimeout(ctx, openTime)
	defer cancel()
	served, m, err := s.types.Beside(ctx, c.Entity.Type, c.For.Digest)
	if err != nil {
		c.For.Note(fmt.Sprintf("the module is not available: %v", err))
		return false
	}
	if _, err := s.replayer.use(m, c.For.Digest, c.Entity.Type); err != nil {
		c.For.Note(err.Error())
		return false
	}
	c.For.Note("")
	s.served = served
	s.replayer.setBounds(served)
	return true
}

// shadowCommand is the content of a command's frames.
type shadowCommand struct {
	at      journal.Sequence // sequence of the entity's last event before the command
	name    string
	payload []byte
	source  abi.SourceKind
}

func parseCommand(frames []byte) (q shadowCommand, err error) {
	for r := abi.NewReader(frames); ; {
		f, ok, err := r.Next()
		if err != nil || !ok {
			return q, err
		}
		switch f.Kind {
		case abi.InSequence:
			at, err := abi.DecodeUint64(f.Body)
			if err != nil {
				return q, err
			}
			q.at = journal.Sequence(at)
		case abi.InName:
			q.name = string(f.Body)
		case abi.InPayload:
			q.payload = f.Body
		case abi.InSource:
			from, err := abi.DecodeSource(f.Body)
			if err != nil {
				return q, err
			}
			q.source = from.Kind
		}
	}
}

// compare lets the shadow module decide a command and returns how the decision
// differs. An error means that the command cannot be compared.
func (s *shadower) compare(ctx context.Context, c *trial.Command) (e trial.Example, fuel int64, err error) {
	q, err := parseCommand(c.Input)
	if err != nil {
		return e, 0, err
	}
	e = trial.Example{Entity: c.Entity, Sequence: q.at, Command: q.name}
	if refused := s.refuses(&q); refused != nil {
		e.In, e.Fault = trial.Rejection, refused.Error()
		return e, 0, nil
	}
	if err := s.awaitEvents(ctx, c.Entity, q.at); err != nil {
		return e, 0, err
	}
	calm := context.AfterFunc(ctx, s.replayer.interrupt)
	defer func() {
		if !calm() {
			s.replayer.close() // an interrupted instance is not used again
		}
	}()
	if err = s.state(ctx, c, q.at); err != nil {
		if ctx.Err() != nil || !guestFails(err) {
			return e, 0, errors.Join(err, ctx.Err())
		}
		e.In, e.Fault = trial.Fault, "before the command: "+err.Error()
		return e, 0, nil
	}
	is, fuel, err := s.decide(ctx, c)
	if ctx.Err() != nil || errors.Is(err, guest.ErrDeadline) || errors.Is(err, guest.ErrInterrupted) {
		return e, 0, errors.Join(err, ctx.Err())
	}
	was, failed := s.parse(c.Entity, c.Output)
	switch {
	case err != nil && (c.Failed || failed != nil): // both fail, so nothing differs
	case err != nil:
		e.In, e.Fault = trial.Fault, err.Error()
	case c.Failed || failed != nil:
		e.In, e.Fault = trial.Fault, "the active module fails, but this module does not"
	default:
		e.In = trial.Compare(was, is, func(a, b []byte) bool { return same(a, b, s.served.API.Encoding == request.JSON) })
	}
	return e, fuel, nil
}

// refuses returns the error with which a node would reject the command before
// calling the module.
func (s *shadower) refuses(q *shadowCommand) error {
	r := &request.Request{Name: q.name, Payload: q.payload}
	if q.source == abi.SourceEntity {
		r.Delivery = &request.Delivery{}
	}
	if q.source == abi.SourceClient && s.served.Internal[q.name] {
		return request.ErrInternalCommand
	}
	return s.served.RefusesCommand(r)
}

// awaitEvents waits until the events before a command are committed.
func (s *shadower) awaitEvents(ctx context.Context, id sharding.EntityID, at journal.Sequence) error {
	ctx, cancel := context.WithTimeout(ctx, reachTime)
	defer cancel()
	for {
		head, err := s.machine.Info(s.executors.ShardOf(id), id)
		if err != nil || head.Sequence >= at {
			return err
		}
		again := time.NewTimer(reachEvery)
		select {
		case <-again.C:
		case <-ctx.Done():
			again.Stop()
			return errNotReached
		}
	}
}

// state lets the shadow module compute the state that the command was decided
// on, in the way an executor does.
func (s *shadower) state(ctx context.Context, c *trial.Command, at journal.Sequence) error {
	shard := s.executors.ShardOf(c.Entity)
	if at == 0 {
		return s.replayer.start(ctx, c.Entity, 0, given{})
	}
	from := at - 1
	if !s.served.Durable {
		var err error
		if from, err = s.replayer.begin(ctx, s.machine, shard, c.Entity, at+1); err != nil {
			return err
		}
		if at-from > shadowEvents {
			return errFar
		}
	}
	w := walk{id: c.Entity, to: &s.replayer, durable: s.served.Durable, look: func(r *journal.Record, _ int) error {
		if r.RecordedAt > c.Now {
			return errOther
		}
		return nil
	}}
	err := w.read(ctx, s.machine, shard, from, at)
	s.replayed = w.events
	return err
}

// decide lets the shadow module handle a command. If the guest fails, the
// instance is closed.
func (s *shadower) decide(ctx context.Context, c *trial.Command) (out *abi.Output, fuel int64, err error) {
	if s.replayer.guest == nil {
		return nil, 0, guest.ErrInstanceDead
	}
	s.replayer.guest.SetBudgets(guest.Budgets{Command: s.served.CommandFuel})
	deadline, _ := ctx.Deadline()
	raw, err := s.replayer.guest.Handle(handle, c.Input, guest.Env{Now: c.Now, Seed: c.Seed, Deadline: deadline})
	fuel = s.replayer.guest.Fuel()
	if err != nil {
		s.replayer.close()
		return nil, fuel, err
	}
	out, err = s.parse(c.Entity, bytes.Clone(raw))
	return out, fuel, err
}

// parse parses a guest's answer, as an executor does. It keeps raw.
func (s *shadower) parse(id sharding.EntityID, raw []byte) (*abi.Output, error) {
	out := &abi.Output{}
	if err := abi.ParseOutput(out, raw, s.served.Mode(), s.served.Limits); err != nil {
		return nil, err
	}
	return out, s.served.CheckMessages(id, out)
}
