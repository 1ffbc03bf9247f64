package journal

import "fmt"

// SectionTrace is the span in which a command was carried out, where its trace
// is sampled: TraceContext.
const SectionTrace SectionKind = 9

// TraceContext names a span of a trace, as W3C's Trace Context does. It decides
// nothing: what follows from the record, later and elsewhere, is linked to it.
type TraceContext struct {
	Trace [16]byte // not all zeros
	Span  [8]byte  // not all zeros
	Flags uint8    // bit 0: the trace is sampled; TraceAfterTimer
}

// TraceAfterTimer is the bit of Flags of what a timer led to, by way of
// messages too. Timers that are set in such a span are not linked to it: those
// that set each other again would be traced for ever. The bit leaves the
// cluster with no span.
const TraceAfterTimer uint8 = 1 << 7

// TraceContextBytes is the length of an encoded TraceContext.
const TraceContextBytes = 16 + 8 + 1

// Valid reports whether c names a span.
func (c *TraceContext) Valid() bool { return c.Trace != [16]byte{} && c.Span != [8]byte{} }

// TraceContext is the span that the record names; nil for none, and for what
// names none: it decides nothing.
func (v *RecordView) TraceContext() *TraceContext {
	data := v.Section(SectionTrace)
	if data == nil {
		return nil
	}
	c, err := DecodeTraceContext(data)
	if err != nil {
		return nil
	}
	return &c
}

// AppendTraceContext appends the data of a trace section: trace [16], span [8],
// flags u8.
func AppendTraceContext(dst []byte, c *TraceContext) []byte {
	dst = append(dst, c.Trace[:]...)
	dst = append(dst, c.Span[:]...)
	return append(dst, c.Flags)
}

// DecodeTraceContext reads the data of a trace section. The error is an
// ErrDamaged.
func DecodeTraceContext(data []byte) (c TraceContext, err error) {
	if len(data) != TraceContextBytes {
		return c, fmt.Errorf("%w: a trace context of %d bytes", ErrDamaged, len(data))
	}
	copy(c.Trace[:], data)
	copy(c.Span[:], data[16:])
	c.Flags = data[24]
	if !c.Valid() {
		return TraceContext{}, fmt.Errorf("%w: a trace context names no span", ErrDamaged)
	}
	return c, nil
}
