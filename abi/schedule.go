package abi

// Missed determines what happens to the ticks of a schedule that could not fire
// when they were due. A tick is missed if it fires more than a minute late, or
// if the next tick is already due when it fires.
type Missed uint8

const (
	// MissedOnce fires once, late, for all missed ticks.
	MissedOnce Missed = 0
	// MissedAll fires for each missed tick, the oldest first. After MaxMissed
	// in a row it skips the rest.
	MissedAll Missed = 1
	// MissedSkip fires for none of the missed ticks.
	MissedSkip Missed = 2
)

// MaxMissed is how many missed ticks of a schedule are fired in a row.
const MaxMissed = 100

// String returns "once", "all" or "skip".
func (m Missed) String() string {
	switch m {
	case MissedOnce:
		return "once"
	case MissedAll:
		return "all"
	case MissedSkip:
		return "skip"
	}
	return "unknown"
}

// AppendSetSchedule appends a set schedule frame. It ignores timer.Due and
// timer.Cancel.
func AppendSetSchedule(dst []byte, timer Timer) []byte {
	dst, mark := BeginFrame(dst, OutSetSchedule)
	dst = AppendField(dst, timer.Name)
	dst = AppendField(dst, timer.Expression)
	dst = AppendField(dst, timer.Zone)
	dst = append(dst, byte(timer.Missed))
	dst = AppendField(dst, timer.Command)
	dst = append(dst, timer.Payload...)
	EndFrame(dst, mark)
	return dst
}

// DecodeSetSchedule decodes the body of a set schedule frame.
func DecodeSetSchedule(body []byte) (t Timer, err error) {
	var ok bool
	rest := body
	if t.Name, rest, ok = cutField(rest); !ok {
		return Timer{}, errShort
	}
	if t.Expression, rest, ok = cutField(rest); !ok {
		return Timer{}, errShort
	}
	if t.Zone, rest, ok = cutField(rest); !ok || len(rest) < 1 {
		return Timer{}, errShort
	}
	t.Missed = Missed(rest[0])
	if t.Command, t.Payload, ok = cutField(rest[1:]); !ok {
		return Timer{}, errShort
	}
	return t, nil
}

// schedule checks the fields that a set timer frame does not have. The host
// checks whether the expression is valid and the zone is known.
func (p *parser) schedule(t *Timer) error {
	if err := p.name("schedule", t.Expression); err != nil {
		return err
	}
	if len(t.Zone) > 0 {
		if err := p.name("time zone", t.Zone); err != nil {
			return err
		}
	}
	if t.Missed > MissedSkip {
		return p.malformedError("no such policy for missed ticks")
	}
	return nil
}
