package abi

import (
	"errors"
	"fmt"
	"strconv"
)

// Sentinel errors to which a *FrameError unwraps.
var (
	// ErrMalformed means that the bytes are not frames of this contract.
	ErrMalformed = errors.New("malformed frame")
	// ErrOverLimit means that the frames are well formed but exceed a limit.
	ErrOverLimit = errors.New("over limit")
	// ErrInvalidValue means that the frames are well formed but contain an
	// invalid name, entity id or entity type. It is also an ErrMalformed.
	ErrInvalidValue = fmt.Errorf("%w: invalid value", ErrMalformed)
)

// FrameError reports which frame is wrong, where and why.
type FrameError struct {
	Index  int    // index of the frame, starting at 0
	Offset int    // offset of the frame's first byte
	Kind   Kind   // kind of the frame; 0 if it could not be read
	Reason string // text that may be shown to anyone, because it contains no payload and no name
	Got    int64  // the number that exceeds Limit, for ErrOverLimit
	Limit  int64  // 0 if the fault is not a limit
	Cause  error  // ErrMalformed, ErrInvalidValue or ErrOverLimit
	input  bool   // Kind is an input kind
}

func (e *FrameError) Error() string {
	kind := ""
	switch {
	case e.Kind == 0:
	case e.input:
		kind = " (input kind " + strconv.Itoa(int(e.Kind)) + ")"
	default:
		kind = " (" + e.Kind.outputName() + ")"
	}
	text := "frame " + strconv.Itoa(e.Index) + kind + " at byte " + strconv.Itoa(e.Offset) + ": " + e.Reason
	if e.Cause == ErrOverLimit {
		text += ": " + strconv.FormatInt(e.Got, 10) + ", limit " + strconv.FormatInt(e.Limit, 10)
	}
	return text
}

func (e *FrameError) Unwrap() error { return e.Cause }

// The reasons why a body of fixed layout cannot be decoded. DecodeX functions
// return these; they unwrap to ErrMalformed.
var (
	errShort    = &bodyError{"body is too short"}
	errNotEight = &bodyError{"body is not 8 bytes"}
	errSource   = &bodyError{"unknown source"}
	errTrailing = &bodyError{"bytes after the last field"}
)

// bodyError says why the body of a frame is malformed, as a constant text.
type bodyError struct{ reason string }

func (e *bodyError) Error() string { return e.reason }
func (e *bodyError) Unwrap() error { return ErrMalformed }

// reasonOf returns the constant text of an error of a DecodeX function.
func reasonOf(err error) string {
	if body, ok := err.(*bodyError); ok {
		return body.reason
	}
	return err.Error()
}
