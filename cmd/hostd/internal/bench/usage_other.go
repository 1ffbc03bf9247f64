//go:build !linux

package bench

import "errors"

// ReadUsage fails, because it is only implemented for Linux.
func ReadUsage(int) (Usage, error) { return Usage{}, errors.ErrUnsupported }
