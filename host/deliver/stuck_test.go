package deliver

import (
	"testing"
	"time"

	"github.com/hostd/hostd/host/request"
	"github.com/hostd/hostd/sharding"
)

// answerers lets entities of the type "callee" execute the messages of runs,
// unless their executor would make them wait, and return an outcome for each
// message. It returns the number of outcomes that a run has accepted. While
// faults is set, runs accept no outcome.
func (b *bench) answerers(faults *bool) (accepted map[sharding.EntityID]int) {
	accepted = map[sharding.EntityID]int{}
	b.fails = func(r *request.Request) error {
		switch c := &b.core.core; {
		case r.Entity.Type == "callee" && r.Delivery.Source.Type != "other":
			if c.stuck.isStuck(&c.opts, worldShard, r.Delivery.Source) {
				return request.ErrOutboxFull
			}
			b.add(r.Entity, r.Delivery.Source, 1)
			b.box[len(b.box)-1].Answer = true
		case r.Entity.Type == "run" && *faults:
			return request.ErrQuarantined
		case r.Entity.Type == "run":
			accepted[r.Entity]++
		}
		return nil
	}
	return accepted
}

// A run that faults at each outcome and asks 10,000 entities, as fast as its
// outbox allows, gets no more outcomes than were under way when the first one
// failed: other entities are not asked until the run works again. Messages of
// other entities arrive meanwhile, and no message is lost.
func TestOutcomesOfAFaultingRunAreBounded(t *testing.T) {
	const asks, outbox = 10_000, 1024
	b, faults := newBench(t, Options{}), true
	accepted := b.answerers(&faults)
	run := entityOf("run", 1)
	waiting := func() (outcomes, questions int) {
		for i := range b.box {
			switch {
			case b.box[i].Answer:
				outcomes++
			case b.box[i].Source == run:
				questions++
			}
		}
		return outcomes, questions
	}
	asked := 0
	askMore := func() {
		for _, questions := waiting(); asked < asks && questions < outbox; questions++ {
			b.add(run, entityOf("callee", asked), 1)
			asked++
		}
	}
	for range 300 {
		askMore()
		b.pass(100 * time.Millisecond)
	}
	outcomes, questions := waiting()
	if outcomes == 0 || outcomes > 2*outbox || outcomes+questions != asked {
		t.Errorf("%d outcomes wait for a run that has asked %d times; %d messages are not executed", outcomes, asked, questions)
	}
	for i := range 100 {
		b.add(entityOf("other", i), entityOf("callee", i), 1)
		b.run(time.Second, func() bool { return b.had[channel{entityOf("other", i), entityOf("callee", i)}] == 1 })
	}
	if before := outcomes; b.core.Stats().Stuck == 0 {
		t.Error("no channel is reported as stuck")
	} else if outcomes, _ = waiting(); outcomes != before {
		t.Errorf("%d outcomes wait, %d before", outcomes, before)
	}
	faults = false
	b.run(time.Hour, func() bool {
		askMore()
		return accepted[run] == asks && len(b.box) == 0
	})
	b.pass(time.Second)
	if got := b.core.Stats().Stuck; got != 0 || accepted[run] != asks {
		t.Errorf("%d channels are stuck, %d outcomes were accepted", got, accepted[run])
	}
}

// If the outcomes of many entities of a type wait in a shard, a message that
// wants an outcome waits, whichever entity of that type has sent it. Other
// types are not affected.
func TestOutcomesOfATypeAreBounded(t *testing.T) {
	for name, opts := range map[string]Options{"by number": {TypeOutcomes: 10}, "by size": {TypeOutcomeBytes: 10 * (256 + 100)}} {
		b, faults := newBench(t, opts), true
		b.answerers(&faults)
		stuck := func(typ string, n int) bool {
			return b.core.core.stuck.isStuck(&b.core.core.opts, worldShard, entityOf(typ, n))
		}
		for i := range 10 {
			if stuck("run", 100) {
				t.Fatalf("%s: the type waits although the outcomes of only %d runs do", name, i)
			}
			b.add(entityOf("run", i), entityOf("callee", i), 1)
			b.run(time.Minute, func() bool { return stuck("run", i) })
		}
		if !stuck("run", 100) || stuck("callee", 100) {
			t.Errorf("%s: runs wait: %v, callees: %v", name, stuck("run", 100), stuck("callee", 100))
		}
		b.core.core.lead(nil)
		if stuck("run", 1) || b.core.Stats().Stuck != 0 {
			t.Errorf("%s: %d channels are counted in a shard that the node does not lead", name, b.core.Stats().Stuck)
		}
	}
}

// A run whose outcomes wait in many channels holds back its own messages, and
// counts for its type no more than its share.
func TestOneEntityDoesNotHoldItsType(t *testing.T) {
	b, faults := newBench(t, Options{TypeOutcomes: shareOutcomes + 1}), true
	b.answerers(&faults)
	stuck := func(n int) bool { return b.core.core.stuck.isStuck(&b.core.core.opts, worldShard, entityOf("run", n)) }
	for i := range 2 * shareOutcomes {
		b.add(entityOf("run", 1), entityOf("callee", i), 1)
	}
	b.run(time.Minute, func() bool { return b.core.Stats().Stuck == 2*shareOutcomes })
	if !stuck(1) || stuck(2) {
		t.Errorf("the run waits: %v, another one: %v", stuck(1), stuck(2))
	}
	b.add(entityOf("run", 3), entityOf("callee", 1000), 1)
	b.run(time.Minute, func() bool { return stuck(3) })
	if !stuck(2) {
		t.Error("the outcomes of two runs exceed the limit of their type, and another run does not wait")
	}
}
