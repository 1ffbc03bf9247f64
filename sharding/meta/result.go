package meta

import (
	"errors"
	"fmt"
)

const resultVersion = 1

// Result is the outcome of an accepted command.
type Result struct {
	// Revision of the binding after Bind or Rollback, of the setting after
	// PutSetting.
	Revision uint64 `json:"revision,omitempty"`
	// Changed is false when the command found everything as it asked.
	Changed bool `json:"changed,omitempty"`
	// Placements of the shards that Place asked for, in the order asked, or of
	// the one that Change changed.
	Placements []Placement `json:"placements,omitempty"`
	// Joined answers Join.
	Joined *Joined `json:"joined,omitempty"`
	// Collected are the modules that CollectModules has removed.
	Collected []Digest `json:"collected,omitempty"`
}

// resultBytes is a Result, or an error, as it is encoded.
type resultBytes struct {
	Version int `json:"v"`
	Result
	Code    string `json:"code,omitempty"`
	Message string `json:"message,omitempty"`
}

// resultCodes names each error in results; the names are part of the format.
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
	{"put_down", ErrPutDown}, // after that of ErrConflict, which it is too
	{"left", ErrLeft},        // likewise
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

// DecodeResult reads what Apply answered: the result, or one of the package's
// errors, wrapped with the message of the replica that applied the command.
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

// commandError carries a replica's message and its sentinel.
type commandError struct {
	message string
	kind    error
}

func (e *commandError) Error() string { return e.message }
func (e *commandError) Unwrap() error { return e.kind }
