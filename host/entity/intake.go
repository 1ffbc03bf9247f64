package entity

import (
	"time"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// Guests make messages at their own rate, and messages lead to more messages.
// So an executor does not admit deliveries as they arrive. They wait in a queue
// for the type of their destination, and are admitted at a rate that does not
// delay callers. The type that has used the executor least comes first.
//
//	Deliver --> waits, by type --> admitted, to its entity's queue --> decided
//	            bounded            bounded: the less, the longer callers wait
//
// A type's use is the cost of its deliveries: their number, their fuel and the
// bytes of their records. If a type has limits per second, its deliveries are
// subject to them.

const (
	// typeMost bounds the waiting deliveries of a type in an executor.
	typeMost = 1024
	// These bound the deliveries that are admitted and not decided. The bound
	// is aloneMost while there are no callers, and besideMost while callers are
	// answered quickly. Otherwise it is half the number of unanswered requests
	// of callers, and at least leastMost.
	aloneMost  = 1024
	besideMost = 256
	leastMost  = 32
	// fuelRate is the fuel that deliveries may spend per second while there are
	// callers, about a quarter of a core. Unused fuel accumulates for
	// fuelBurst.
	fuelRate  = 2_000_000_000
	fuelBurst = 50 * time.Millisecond
	// deliveryFuel is the fuel that is charged for a delivery, and byteFuel the
	// fuel for each byte of its record.
	deliveryFuel = 50_000
	byteFuel     = 100
)

// intakeExecutor is the executor that an intake belongs to. No method blocks.
type intakeExecutor interface {
	// Now is the time of the executor's current turn.
	Now() time.Time
	// Load returns the number of unanswered requests of the executor, without
	// timers, and the duration of the last commit in nanoseconds.
	Load() (owed int, commit int64)
	// IsLate reports whether a request's deadline has passed.
	IsLate(*request.Request) bool
	// Allow charges a delivery to its type's limits per second. If they allow
	// no delivery now, it returns how long to wait.
	Allow(entityType string, now int64) (wait time.Duration)
	// Hand passes a delivery to its entity.
	Hand(*request.Request)
	// Refuse answers a delivery with an error.
	Refuse(*request.Request, error)
	// LookAt makes the executor call Admit at the given time, in unix
	// nanoseconds.
	LookAt(at int64)
}

// deliveryIntake holds an executor's waiting deliveries and counts the admitted
// ones.
type deliveryIntake struct {
	exec     intakeExecutor
	types    map[string]*queue
	waiting  int
	admitted int   // number of deliveries admitted and not decided
	clock    int64 // virtual time: the cost of the type admitted last; new types start with it
	fuel     float64
	counted  int64 // when fuel was last updated
	callers  int64 // time of the last request of a caller, unix nanoseconds
}

// queue holds the waiting deliveries of one type.
type queue struct {
	name  string
	queue request.Queue
	cost  int64 // cost of the admitted deliveries, as a virtual time
	until int64 // earliest time at which the type's rate allows a delivery, unix nanoseconds
}

// newDeliveryIntake returns an empty intake.
func newDeliveryIntake(exec intakeExecutor) *deliveryIntake {
	return &deliveryIntake{exec: exec, types: make(map[string]*queue)}
}

// IsFull reports whether no further delivery to the type may wait.
func (in *deliveryIntake) IsFull(entityType string) bool {
	q := in.types[entityType]
	return q != nil && q.queue.Len() >= typeMost
}

// Put queues a delivery.
func (in *deliveryIntake) Put(r *request.Request) {
	q := in.types[r.Entity.Type]
	if q == nil {
		q = &queue{name: r.Entity.Type, cost: in.clock}
		in.types[q.name] = q
	}
	in.waiting++
	r.Delivery.Exec.Intake = deliveryWaits
	q.queue.Push(r)
}

// States of a delivery in the intake.
const (
	deliveryWaits = iota + 1
	deliveryAdmitted
)

// NoteRequest notes a request of a caller.
func (in *deliveryIntake) NoteRequest() { in.callers = in.exec.Now().UnixNano() }

// Waiting is the number of waiting deliveries.
func (in *deliveryIntake) Waiting() int { return in.waiting }

// AdmittedCount is the number of deliveries that are admitted and not decided.
func (in *deliveryIntake) AdmittedCount() int { return in.admitted }

// Release notes that a delivery is decided.
func (in *deliveryIntake) Release(d *request.Delivery) {
	switch d.Exec.Intake {
	case deliveryWaits:
		in.waiting--
	case deliveryAdmitted:
		in.admitted--
	}
	d.Exec.Intake = 0
}

// room returns the maximum number of deliveries that may be admitted and not
// decided now.
func (in *deliveryIntake) room() int {
	if in.exec.Now().UnixNano()-in.callers > int64(timers.Alone) {
		return aloneMost
	}
	owed, commit := in.exec.Load()
	if commit <= int64(timers.Slow) {
		return besideMost
	}
	return max(leastMost, (owed-in.waiting-in.admitted)/2)
}

// Admit passes as many deliveries to their entities as the limits allow.
func (in *deliveryIntake) Admit() {
	if in.waiting == 0 {
		return
	}
	now := in.exec.Now().UnixNano()
	passed := min(now-in.counted, int64(fuelBurst))
	in.fuel, in.counted = min(in.fuel+fuelRate*float64(passed)/float64(time.Second), fuelRate*fuelBurst.Seconds()), now
	for room := in.room(); in.waiting > 0 && in.admitted < room; {
		if in.fuel < 0 && room != aloneMost {
			break
		}
		q, wait := in.next(now)
		if q == nil {
			in.exec.LookAt(wait)
			return
		}
		r := q.queue.Pop()
		if in.exec.IsLate(r) {
			in.exec.Refuse(r, request.ErrDeadline)
			continue
		}
		in.waiting--
		in.admitted++
		r.Delivery.Exec.Intake = deliveryAdmitted
		in.clock = max(in.clock, q.cost)
		in.Charge(r.Entity.Type, deliveryFuel)
		in.exec.Hand(r)
	}
	if in.waiting > 0 {
		in.exec.LookAt(now + int64(timers.Tick))
	}
}

// next returns the type whose delivery comes next. If no delivery is allowed
// now, it returns the time of the next check.
func (in *deliveryIntake) next(now int64) (next *queue, wait int64) {
	for name, q := range in.types {
		switch {
		case q.queue.Len() == 0:
			if q.cost <= in.clock {
				delete(in.types, name)
			}
		case q.until > now:
			if wait == 0 || q.until < wait {
				wait = q.until
			}
		case next == nil || q.cost < next.cost || q.cost == next.cost && q.name < next.name:
			next = q
		}
	}
	if next == nil {
		return nil, wait
	}
	if d := in.exec.Allow(next.name, now); d > 0 {
		next.until = now + int64(min(d, timers.LimitLook))
		return in.next(now)
	}
	return next, 0
}

// Charge charges the cost of a delivery to its type.
func (in *deliveryIntake) Charge(entityType string, fuel int64) {
	in.fuel -= float64(fuel)
	if q := in.types[entityType]; q != nil {
		q.cost += fuel
	}
}

// Expire answers deliveries whose deadline has passed.
func (in *deliveryIntake) Expire() {
	for _, q := range in.types {
		in.sift(q, in.exec.IsLate, request.ErrDeadline)
	}
}

// Drop answers the deliveries of a shard that is no longer led.
func (in *deliveryIntake) Drop(shard sharding.ShardID, lost error) {
	for _, q := range in.types {
		in.sift(q, func(r *request.Request) bool { return r.Shard == shard }, lost)
	}
}

// sift answers and removes the deliveries for which leaves returns true.
func (in *deliveryIntake) sift(q *queue, leaves func(*request.Request) bool, err error) {
	for range q.queue.Len() {
		if r := q.queue.Pop(); leaves(r) {
			in.exec.Refuse(r, err)
		} else {
			q.queue.Push(r)
		}
	}
}
