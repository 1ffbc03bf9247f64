package telemetry

import "encoding/hex"

// SampledTrace returns the trace id in a traceparent header (W3C Trace
// Context). It returns zeros if there is none or if the trace is not sampled.
func SampledTrace(traceparent string) (trace [16]byte) {
	const length = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")
	p := traceparent
	if len(p) < length || p[:2] == "ff" || p[:2] == "00" && len(p) > length || len(p) > length && p[length] != '-' || p[2] != '-' || p[35] != '-' || p[52] != '-' {
		return trace
	}
	var rest [16]byte // version, span and flags, one after another
	for _, part := range []string{p[:2], p[36:52], p[53:55]} {
		if !unhex(rest[:], part) {
			return trace
		}
	}
	if rest[0]&1 == 0 || !unhex(trace[:], p[3:35]) {
		return [16]byte{}
	}
	return trace
}

// unhex decodes lower-case hex digits and reports whether they are valid.
func unhex(to []byte, digits string) bool {
	for i := range len(digits) {
		if c := digits[i]; (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	_, err := hex.Decode(to, []byte(digits))
	return err == nil
}
