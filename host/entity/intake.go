package entity

import (
	"time"

	"github.com/hostd/hostd/host/entity/timers"
	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// Sends of entities come at the rate at which guests make them, and what they
// lead to is more sends. So an executor does not take deliveries as they come: they
// wait by the type of their destination, and go to their entities as far as
// that delays no caller, the type first that has had least of the lane.
//
//	Deliver --> waits, by type --> admitted, to its entity's queue --> decided
//	            bounded            bounded: the less, the longer callers wait
//
// What a type has had is what its deliveries cost: their number, the fuel and
// the bytes of their records. A type with limits of what it does in a second
// has no more of them than these leave it.

const (
	// typeMost bounds the deliveries of a type that wait in an executor.
	typeMost = 1024
	// aloneMost bounds those that are admitted and not decided while no caller
	// asks for anything, besideMost while callers are answered quickly, and
	// leastMost is how many may be however long they wait; for every second
	// request of a caller there may be one.
	aloneMost  = 1024
	besideMost = 256
	leastMost  = 32
	// fuelRate is what deliveries may spend in a second beside callers, some
	// quarter of a core, and fuelBurst for how long it adds up.
	fuelRate  = 2_000_000_000
	fuelBurst = 50 * time.Millisecond
	// What a delivery counts for, and each byte of its record, in fuel.
	deliveryFuel = 50_000
	byteFuel     = 100
)

// intakeLane is what the intake needs of the executor that has it. No method blocks.
type intakeLane interface {
	// Now is the time of this turn.
	Now() time.Time
	// Load is how many requests of the executor have not been answered, but for
	// timers, and how long the last commit took, in nanoseconds.
	Load() (owed int, commit int64)
	// Late reports that a request's deadline has passed.
	Late(*request.Request) bool
	// Allow takes a delivery from what its type may do in a second, or says for
	// how long that allows none.
	Allow(entityType string, now int64) (wait time.Duration)
	// Hand brings a delivery to its entity.
	Hand(*request.Request)
	// Refuse answers a delivery.
	Refuse(*request.Request, error)
	// LookAt has the executor call Admit at a time, unix nanoseconds.
	LookAt(at int64)
}

// deliveryIntake is the deliveries of an executor that wait, and what is admitted.
type deliveryIntake struct {
	lane     intakeLane
	types    map[string]*queue
	waiting  int
	admitted int   // and not decided
	clock    int64 // cost at which the last was admitted: types begin no earlier
	fuel     float64
	counted  int64 // when fuel was brought up to date
	callers  int64 // when a caller last asked, unix nanoseconds
}

// queue is the deliveries of one type.
type queue struct {
	name  string
	queue request.Queue
	cost  int64 // of what was admitted, as a virtual time
	until int64 // the type's rate allows none before, unix nanoseconds
}

// newDeliveryIntake returns the intake of an executor, with nothing in it.
func newDeliveryIntake(lane intakeLane) *deliveryIntake {
	return &deliveryIntake{lane: lane, types: make(map[string]*queue)}
}

// Full reports that as many deliveries to a type wait as may.
func (in *deliveryIntake) Full(entityType string) bool {
	q := in.types[entityType]
	return q != nil && q.queue.Len() >= typeMost
}

// Put lets a delivery wait for its turn.
func (in *deliveryIntake) Put(r *request.Request) {
	q := in.types[r.Entity.Type]
	if q == nil {
		q = &queue{name: r.Entity.Type, cost: in.clock}
		in.types[q.name] = q
	}
	in.waiting++
	r.Delivery.Lane.Intake = deliveryWaits
	q.queue.Push(r)
}

// The states of a delivery in its lane.
const (
	deliveryWaits = iota + 1
	isAdmitted
)

// Asked notes that a caller has asked for something.
func (in *deliveryIntake) Asked() { in.callers = in.lane.Now().UnixNano() }

// Waiting is how many deliveries wait.
func (in *deliveryIntake) Waiting() int { return in.waiting }

// Admitted is how many deliveries are admitted and not decided.
func (in *deliveryIntake) Admitted() int { return in.admitted }

// Left takes note that a delivery is decided.
func (in *deliveryIntake) Left(d *request.Delivery) {
	switch d.Lane.Intake {
	case deliveryWaits:
		in.waiting--
	case isAdmitted:
		in.admitted--
	}
	d.Lane.Intake = 0
}

// room is how many deliveries may be admitted and not decided.
func (in *deliveryIntake) room() int {
	if in.lane.Now().UnixNano()-in.callers > int64(timers.Alone) {
		return aloneMost
	}
	owed, commit := in.lane.Load()
	if commit <= int64(timers.Slow) {
		return besideMost
	}
	return max(leastMost, (owed-in.waiting-in.admitted)/2)
}

// Admit hands deliveries to their entities, as many as may be now.
func (in *deliveryIntake) Admit() {
	if in.waiting == 0 {
		return
	}
	now := in.lane.Now().UnixNano()
	passed := min(now-in.counted, int64(fuelBurst))
	in.fuel, in.counted = min(in.fuel+fuelRate*float64(passed)/float64(time.Second), fuelRate*fuelBurst.Seconds()), now
	for room := in.room(); in.waiting > 0 && in.admitted < room; {
		if in.fuel < 0 && room != aloneMost {
			break
		}
		q, wait := in.next(now)
		if q == nil {
			in.lane.LookAt(wait)
			return
		}
		r := q.queue.Pop()
		if in.lane.Late(r) {
			in.lane.Refuse(r, request.ErrDeadline)
			continue
		}
		in.waiting--
		in.admitted++
		r.Delivery.Lane.Intake = isAdmitted
		in.clock = max(in.clock, q.cost)
		in.Charge(r.Entity.Type, deliveryFuel)
		in.lane.Hand(r)
	}
	if in.waiting > 0 {
		in.lane.LookAt(now + int64(timers.Tick))
	}
}

// next is the type whose delivery is next, or when there may be one.
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
	if d := in.lane.Allow(next.name, now); d > 0 {
		next.until = now + int64(min(d, timers.LimitLook))
		return in.next(now)
	}
	return next, 0
}

// Charge counts what a delivery has cost.
func (in *deliveryIntake) Charge(entityType string, fuel int64) {
	in.fuel -= float64(fuel)
	if q := in.types[entityType]; q != nil {
		q.cost += fuel
	}
}

// Expire answers deliveries whose deadline has passed.
func (in *deliveryIntake) Expire() {
	for _, q := range in.types {
		in.sift(q, in.lane.Late, request.ErrDeadline)
	}
}

// Drop answers the deliveries of a shard that is lost.
func (in *deliveryIntake) Drop(shard sharding.ShardID, lost error) {
	for _, q := range in.types {
		in.sift(q, func(r *request.Request) bool { return r.Shard == shard }, lost)
	}
}

// sift answers the deliveries of a queue that are to leave it.
func (in *deliveryIntake) sift(q *queue, leaves func(*request.Request) bool, err error) {
	for range q.queue.Len() {
		if r := q.queue.Pop(); leaves(r) {
			in.lane.Refuse(r, err)
		} else {
			q.queue.Push(r)
		}
	}
}
