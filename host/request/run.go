package request

import "encoding/json"

// RunEnd is the payload of the event abi.RunEnded, which ends a run.
type RunEnd struct {
	Result  json.RawMessage `json:"result,omitempty"`
	Code    string          `json:"code,omitempty"` // why the run failed; empty if it completed
	Message string          `json:"message,omitempty"`
}

// ParseRunEnd reads the payload of the event. A payload that it cannot parse
// counts as a run that failed with CodeInvalidOutput.
func ParseRunEnd(payload []byte) (end RunEnd) {
	if err := json.Unmarshal(payload, &end); err != nil {
		return RunEnd{Code: CodeInvalidOutput, Message: "the end of the run cannot be read"}
	}
	return end
}
