package entity

import (
	"github.com/hostd/hostd/host/entity/timers"
)

// reader performs the readings of a core, by kind.
type reader interface {
	start(*load)
	scan(*timers.Scan)
	existing(*alwaysOnScan)
	lookUp(*inquiry)
}

// start performs a reading.
func start(to reader, r reading) {
	switch r := r.(type) {
	case *load:
		to.start(r)
	case timerReading:
		to.scan(r.Scan)
	case existingReading:
		to.existing(r.alwaysOnScan)
	case *inquiry:
		to.lookUp(r)
	default:
		panic("a reading that no test knows")
	}
}

func (w *world) Start(r reading)  { start(w, r) }
func (j *bench) Start(r reading)  { start(j, r) }
func (a *alarms) Start(r reading) { start(a, r) }
