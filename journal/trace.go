package journal

import "fmt"

// SectionTrace is the span in which the command ran, if its trace is sampled:
// TraceContext.
const SectionTrace SectionKind = 9

// TraceContext identifies a span of a trace, as in W3C Trace Context. It has no
// effect on execution; later consequences of the record are linked to the span.
type TraceContext struct {
	Trace [16]byte // not all zeros
	Span  [8]byte  // not all zeros
	Flags uint8    // bit 0: the trace is sampled; TraceAfterTimer
}

// TraceAfterTimer is the bit of Flags that marks consequences of a timer,
// including indirect consequences. Timers set in such a span are not linked to
// the span, because timers that set each other would otherwise be traced
// forever. The bit is removed before a span leaves the cluster.
const TraceAfterTimer uint8 = 1 << 7

// TraceContextBytes is the length of an encoded TraceContext.
const TraceContextBytes = 16 + 8 + 1

// Valid reports whether c identifies a span.
func (c *TraceContext) Valid() bool { return c.Trace != [16]byte{} && c.Span != [8]byte{} }

// TraceContext returns the span of the record, or nil if there is none or it is
// invalid.
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

// DecodeTraceContext decodes a trace section. The error is ErrDamaged.
func DecodeTraceContext(data []byte) (c TraceContext, err error) {
	if len(data) != TraceContextBytes {
		return c, fmt.Errorf("%w: trace context with %d bytes", ErrDamaged, len(data))
	}
	copy(c.Trace[:], data)
	copy(c.Span[:], data[16:])
	c.Flags = data[24]
	if !c.Valid() {
		return TraceContext{}, fmt.Errorf("%w: trace context without a span id", ErrDamaged)
	}
	return c, nil
}
