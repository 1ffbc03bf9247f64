package abi

import (
	"bytes"
	"errors"
	"testing"
)

func addVectors(f *testing.F) {
	var all []byte
	for _, v := range vectors() {
		f.Add(v.bytes)
		all = append(all, v.bytes...)
	}
	f.Add(all)
	f.Add(benchmarkFrames())
	f.Add([]byte{1, 0xff, 0xff, 0xff, 0xff})
}

// FuzzReader checks that frames are read byte for byte, and that an error is
// inside the input and permanent.
func FuzzReader(f *testing.F) {
	addVectors(f)
	f.Fuzz(func(t *testing.T, data []byte) {
		reader := NewReader(data)
		var again []byte
		for {
			frame, ok, err := reader.Next()
			if err != nil {
				var fault *FrameError
				if !errors.As(err, &fault) || fault.Offset != len(again) {
					t.Fatalf("%v after %d bytes", err, len(again))
				}
				break
			}
			if !ok {
				if len(again) != len(data) {
					t.Fatalf("stopped at %d of %d", len(again), len(data))
				}
				break
			}
			again = AppendFrame(again, frame.Kind, frame.Body)
		}
		if !bytes.HasPrefix(data, again) {
			t.Fatalf("%x is not a prefix of %x", again, data)
		}
		var request Request
		if err := ParseRequest(&request, data); err != nil && !errors.Is(err, ErrMalformed) {
			t.Fatal(err)
		}
		if event, err := DecodeInputEvent(data); err == nil {
			frame := AppendInputEvent(nil, event.Sequence, event.RecordedAt, event.Type, event.Payload)
			if !bytes.Equal(frame[HeaderBytes:], data) {
				t.Fatalf("%x, want %x", frame[HeaderBytes:], data)
			}
		}
	})
}

// FuzzParseOutput checks that accepted output is within the limits, and that it
// is accepted with the same meaning after it is encoded again.
func FuzzParseOutput(f *testing.F) {
	addVectors(f)
	limits := DefaultLimits()
	f.Fuzz(func(t *testing.T, frames []byte) {
		for _, mode := range []Mode{HandleEvents, HandleState, QueryOnly} {
			var out Output
			err := ParseOutput(&out, frames, mode, &limits)
			if err != nil {
				var fault *FrameError
				if !errors.As(err, &fault) || fault.Offset > len(frames) {
					t.Fatalf("%v", err)
				}
				continue
			}
			if len(out.Events) > limits.CommandEvents || len(out.Reply) > limits.ReplyBytes {
				t.Fatalf("over a limit: %+v", out)
			}
			var second Output
			again := writeOutput(&out)
			if err := ParseOutput(&second, again, mode, &limits); err != nil {
				t.Fatalf("%v\n%x\n%x", err, frames, again)
			}
			if third := writeOutput(&second); !bytes.Equal(again, third) {
				t.Fatalf("%x\n%x", again, third)
			}
		}
	})
}

func writeOutput(out *Output) (dst []byte) {
	for _, event := range out.Events {
		dst = AppendEvent(dst, event.Type, event.Payload)
		for _, tag := range event.Tags {
			dst = AppendTag(dst, tag)
		}
	}
	for _, send := range out.Sends {
		dst = AppendSend(dst, send)
	}
	for _, timer := range out.Timers {
		if timer.Cancel {
			dst = AppendCancelTimer(dst, timer.Name)
			continue
		}
		dst = AppendSetTimer(dst, timer)
	}
	if out.HasState {
		dst = AppendState(dst, out.State)
	}
	if out.Rejected {
		dst = AppendReject(dst, out.Reject.Code, out.Reject.Message)
	}
	if out.Passivate {
		dst = AppendPassivate(dst)
	}
	if out.Delete {
		dst = AppendDelete(dst)
	}
	return AppendReply(dst, out.Reply)
}
