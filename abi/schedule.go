package abi

// Missed says what becomes of the ticks of a schedule that could not be fired
// when they were due. A tick is missed when it is fired more than a minute
// late, or when the next one is due by then.
type Missed uint8

const (
	// MissedOnce fires once, late, for all that were missed.
	MissedOnce Missed = 0
	// MissedAll fires for each, one after another, the oldest first: up to
	// MaxMissed in a row, then it leaves out the rest.
	MissedAll Missed = 1
	// MissedSkip fires for none of them.
	MissedSkip Missed = 2
)

// MaxMissed is how many missed ticks of a schedule are fired in a row.
const MaxMissed = 100

// String returns the word for it.
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

// AppendSetSchedule appends a set schedule frame. timer.Due and timer.Cancel
// are not looked at.
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

// DecodeSetSchedule reads the body of a set schedule frame.
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

// schedule checks what a set timer frame does not have. Whether the expression
// is one, and the zone is known, is for the host to say.
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
		return p.malformed("no such policy for missed ticks")
	}
	return nil
}
