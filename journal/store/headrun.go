package store

import (
	"encoding/binary"

	"github.com/hostd/hostd/journal"
)

// HeadRun is the status of a run in its entity row: the time when it began, i64
// little endian, followed by the data of the newest run section in its records.
// It is empty if the entity is not a run.
type HeadRun string

// headRunBytes limits a HeadRun: the status has up to 9 texts of 255 bytes.
const headRunBytes = 8 + 1 + 4 + (1+journal.MaxRunWaits)*256

// NewHeadRun returns the status of a run that began at a time of the log clock,
// in Unix nanoseconds. data is a valid run section.
func NewHeadRun(began int64, data []byte) HeadRun {
	b := binary.LittleEndian.AppendUint64(make([]byte, 0, 8+len(data)), uint64(began))
	return HeadRun(append(b, data...))
}

// Began returns when the run began, 0 if the entity is not a run.
func (r HeadRun) Began() int64 {
	if r == "" {
		return 0
	}
	return int64(binary.LittleEndian.Uint64([]byte(r[:8])))
}

// State returns the state of the run, 0 if the entity is not a run.
func (r HeadRun) State() journal.RunState {
	if r == "" {
		return 0
	}
	return journal.RunState(r[8])
}

// IsOpen reports whether the entity is a run that has not ended.
func (r HeadRun) IsOpen() bool { return r.State() == journal.RunRunning }

// Status returns the status of the run.
func (r HeadRun) Status() (journal.RunStatus, error) {
	if r == "" {
		return journal.RunStatus{}, nil
	}
	return journal.DecodeRunStatus([]byte(r[8:]))
}

// isWhole reports whether the bytes of a row are a HeadRun.
func (r HeadRun) isWhole() bool {
	if len(r) < 8 || len(r) > headRunBytes {
		return false
	}
	_, err := journal.CheckRunStatus([]byte(r[8:]))
	return err == nil
}
