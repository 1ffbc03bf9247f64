package entities

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/hostd/hostd/api/client"
)

type repeat struct {
	Name    string `json:"name"`
	EveryMs int64  `json:"everyMs,omitempty"`
	Cron    string `json:"cron,omitempty"`
	Zone    string `json:"zone,omitempty"`
	Missed  int64  `json:"missed"`
}

// due returns the due times of the ticks of an entity's schedules, by schedule.
func (n *node) due(id string) map[string][]int64 {
	n.t.Helper()
	out := map[string][]int64{}
	for e, err := range n.c.ReadEvents(n.t.Context(), client.EventRange{EntityType: "alarm", EntityID: id}) {
		if err != nil {
			n.t.Fatal(err)
		}
		var tick struct {
			Name string `json:"name"`
			Due  int64  `json:"due"`
		}
		if err := json.Unmarshal(e.Data, &tick); err != nil {
			n.t.Fatal(err)
		}
		if e.Type == "ticked" {
			out[tick.Name] = append(out[tick.Name], tick.Due)
		}
	}
	return out
}

// TestSchedulesSurviveRestarts checks that schedules keep their due times
// across restarts of the node and fire each tick once, that a schedule that
// catches up misses no tick, and that a cancelled schedule ends.
func TestSchedulesSurviveRestarts(t *testing.T) {
	n := newNode(t)
	const period = 400
	for policy, name := range []string{"once", "all", "skip"} {
		n.send("x", "repeat", repeat{Name: name, EveryMs: period, Missed: int64(policy)})
	}
	n.send("x", "repeat", repeat{Name: "report", Cron: "0 3 * * mon-fri", Zone: "Europe/Berlin", Missed: 2})
	n.send("x", "repeat", repeat{Name: "cancelled", EveryMs: 1000 * period})
	n.send("x", "disarm", map[string]string{"name": "cancelled"})
	n.tick("x", 2)
	for range 2 {
		n.stop()
		n.start()
		n.tick("x", 2)
	}
	e, err := n.c.Entity(t.Context(), "alarm", "x")
	if err != nil || len(e.GetTimers()) != 4 {
		t.Fatalf("%v %v", e.GetTimers(), err)
	}
	for _, timer := range e.GetTimers() {
		want := timer.GetName() + " @every 400000000ns  " + timer.GetName()
		if timer.GetName() == "report" {
			want = "report 0 3 * * mon-fri Europe/Berlin skip"
		}
		if got := timer.GetName() + " " + timer.GetSchedule() + " " + timer.GetTimeZone() + " " + timer.GetMissed(); got != want {
			t.Errorf("a schedule is shown as %q, want %q", got, want)
		}
	}
	for _, name := range []string{"once", "all", "skip", "report"} {
		n.send("x", "disarm", map[string]string{"name": name})
	}
	if e, err := n.c.Entity(t.Context(), "alarm", "x"); err != nil || len(e.GetTimers()) != 0 {
		t.Errorf("schedules that were cancelled: %v %v", e.GetTimers(), err)
	}
	for name, due := range n.due("x") {
		for i := 1; i < len(due); i++ {
			step := time.Duration(due[i] - due[i-1])
			if step <= 0 || step%(period*time.Millisecond) != 0 || name == "all" && step != period*time.Millisecond {
				t.Errorf("%s ticks %v after the tick before", name, step)
			}
		}
	}
}

// tick waits until each schedule has ticked the given number of further times.
func (n *node) tick(id string, times int) {
	n.t.Helper()
	before := n.due(id)
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		now, done := n.due(id), true
		for _, name := range []string{"once", "all", "skip"} {
			done = done && len(now[name]) >= len(before[name])+times
		}
		if done {
			return
		}
		if time.Now().After(end) {
			n.t.Fatalf("the schedules have ticked at %v, before at %v", now, before)
		}
	}
}
