package cli

import (
	"errors"
	"fmt"
	"net"

	"connectrpc.com/connect"
	"github.com/spf13/cobra"

	"github.com/hostd/hostd/api/client"
)

// usageCode is the code of a fault of the command line, in addition to the RPC
// codes.
const usageCode = "usage"

// failure is the failure of a command, as JSON.
type failure struct {
	Code    string `json:"code"`             // RPC code or usageCode
	Reason  string `json:"reason,omitempty"` // identifies the failure for programs
	Message string `json:"message"`
	Next    string `json:"next,omitempty"` // suggested next step
	// Rejection is the code of a rejection by a module.
	Rejection string `json:"rejection,omitempty"`
	// ActualSequence is the entity's sequence, if it differs from the expected
	// one.
	ActualSequence *uint64 `json:"actualSequence,omitempty"`
}

// codeOf returns the code of a failure: unavailable if no node was reached.
func codeOf(err error) string {
	var network *net.OpError
	if code := client.CodeOf(err); code != connect.CodeUnknown || !errors.As(err, &network) {
		return code.String()
	}
	return connect.CodeUnavailable.String()
}

// report prints to standard error why a command failed and what to do about it:
// for people or, with -o json, as one line of JSON.
func report(std Stdio, c *cobra.Command, err error, code, next string) {
	if f := c.Flags().Lookup("output"); f == nil || f.Value.String() != "json" {
		fmt.Fprintf(std.Err, "hostd: %s\n", errorText(err))
		if next != "" {
			fmt.Fprintln(std.Err, next)
		}
		return
	}
	v := failure{Code: code, Message: err.Error(), Next: next}
	var failed *client.Error
	var rejected *client.RejectedError
	var mismatch *client.SequenceMismatchError
	switch {
	case errors.As(err, &failed):
		v.Reason = failed.Reason
	case errors.As(err, &rejected):
		v.Rejection = rejected.Code
	case errors.As(err, &mismatch):
		v.ActualSequence = &mismatch.Actual
	}
	_ = WriteJSON(std.Err, map[string]failure{"error": v}, "") // there is no other place to report to
}
