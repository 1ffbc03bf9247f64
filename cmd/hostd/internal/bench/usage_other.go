//go:build !linux

package bench

import "errors"

// ReadUsage fails: only Linux is asked.
func ReadUsage(int) (Usage, error) { return Usage{}, errors.ErrUnsupported }
