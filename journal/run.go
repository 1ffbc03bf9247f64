package journal

import (
	"encoding/binary"
	"fmt"
)

// SectionRun holds the run's status after the record: RunStatus. From
// sharding.VersionWorkflows on.
const SectionRun SectionKind = 11

// RunState says whether a workflow run is open or, if it has ended, how it
// ended.
type RunState uint8

// States of a run. A run is open while it is running.
const (
	RunRunning   RunState = 1
	RunCompleted RunState = 2
	RunFailed    RunState = 3
)

// String returns the name of the state.
func (s RunState) String() string {
	switch s {
	case RunRunning:
		return "running"
	case RunCompleted:
		return "completed"
	case RunFailed:
		return "failed"
	}
	return fmt.Sprintf("state %d", uint8(s))
}

// RunStatus summarizes a run for readers that do not read its history.
type RunStatus struct {
	State RunState
	Steps uint32   // number of steps so far
	Code  string   // why the run failed; empty if it did not
	Waits []string // what the run waits for, as text for people; at most MaxRunWaits entries
}

// MaxRunWaits limits the waits of a RunStatus.
const MaxRunWaits = 8

// AppendRunStatus appends the data of a run section: state u8, steps u32, code
// str8, then each wait str8.
func AppendRunStatus(dst []byte, s *RunStatus) []byte {
	dst = binary.LittleEndian.AppendUint32(append(dst, byte(s.State)), s.Steps)
	dst = append8(dst, s.Code)
	for _, w := range s.Waits[:min(len(s.Waits), MaxRunWaits)] {
		dst = append8(dst, w)
	}
	return dst
}

// DecodeRunStatus is the inverse of AppendRunStatus. It copies the texts.
func DecodeRunStatus(data []byte) (s RunStatus, err error) {
	state, err := CheckRunStatus(data)
	if err != nil {
		return s, err
	}
	d := decoder{b: data[1:]}
	s.State, s.Steps, s.Code = state, d.u32(), string(d.take(int(d.u8())))
	for len(d.b) > 0 {
		s.Waits = append(s.Waits, string(d.take(int(d.u8()))))
	}
	return s, nil
}

// CheckRunStatus checks the data of a run section and returns its state. It
// does not allocate.
func CheckRunStatus(data []byte) (RunState, error) {
	d := decoder{b: data}
	state, waits := RunState(d.u8()), 0
	d.u32()
	code := d.take(int(d.u8()))
	for ; len(d.b) > 0 && !d.bad; waits++ {
		d.take(int(d.u8()))
	}
	if d.bad || state < RunRunning || state > RunFailed || waits > MaxRunWaits || len(code) > 0 != (state == RunFailed) {
		return 0, fmt.Errorf("%w: status of a run", ErrDamaged)
	}
	return state, nil
}
