package meta

import (
	"errors"
	"fmt"
)

const resultVersion = 1

// Result is the result of a successful command.
type Result struct {
	// Revision is the revision of the binding after Bind or Rollback, or of the
	// setting after PutSetting.
	Revision uint64 `json:"revision,omitempty"`
	// Changed is false if the command changed nothing.
	Changed bool `json:"changed,omitempty"`
	// Placements has the placements of the shards passed to Place, in order, or
	// the placement that ChangeReplicas changed.
	Placements []Placement `json:"placements,omitempty"`
	// Joined is the result of Join.
	Joined *JoinResult `json:"joined,omitempty"`
	// Collected are the modules that CollectModules removed.
	Collected []Digest `json:"collected,omitempty"`
}

// resultBytes is the encoding of a Result or an error.
type resultBytes struct {
	Version int `json:"v"`
	Result
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// resultCodes maps errors to codes, which are part of the format. If an error
// matches several entries, the last entry counts.
var resultCodes = []struct {
	code string
	err  error
}{
	{"invalid", ErrInvalid},
	{"no_cluster", ErrNoCluster},
	{"cluster_exists", ErrClusterExists},
	{"unknown_node", ErrUnknownNode},
	{"unknown_shard", ErrUnknownShard},
	{"unknown_module", ErrUnknownModule},
	{"unknown_type", ErrUnknownType},
	{"no_previous", ErrNoPrevious},
	{"conflict", ErrConflict},
	{"shard_key", ErrShardKey},
	{"level", ErrClusterVersion},
	{"quota", ErrQuota},
	{"put_down", ErrNodeDowned}, // after ErrConflict, which it wraps
	{"left", ErrLeft},           // after ErrConflict, which it wraps
}

func encodeResult(r Result, err error) []byte {
	out := resultBytes{Version: resultVersion}
	if err == nil {
		out.Result = r
		return mustJSON(out)
	}
	out.Message = err.Error()
	for _, c := range resultCodes {
		if errors.Is(err, c.err) {
			out.Code = c.code
		}
	}
	return mustJSON(out)
}

// DecodeResult decodes the result of Apply. It returns the Result, or one of
// the package's errors with the message of the replica that applied the
// command.
func DecodeResult(result []byte) (Result, error) {
	var r resultBytes
	if err := strictJSON(result, &r); err != nil || r.Version != resultVersion {
		return Result{}, fmt.Errorf("%w: result", ErrCorrupt)
	}
	if r.Code == "" {
		return r.Result, nil
	}
	for _, c := range resultCodes {
		if c.code == r.Code {
			return Result{}, &commandError{message: r.Message, kind: c.err}
		}
	}
	return Result{}, fmt.Errorf("%w: result code", ErrCorrupt)
}

// commandError combines a replica's message with its sentinel error.
type commandError struct {
	message string
	kind    error
}

func (e *commandError) Error() string { return e.message }
func (e *commandError) Unwrap() error { return e.kind }
