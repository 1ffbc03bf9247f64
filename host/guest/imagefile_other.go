//go:build !linux

package guest

import "errors"

// imageFile is not supported on this platform: each instance runs its
// _initialize.
type imageFile struct{ bytes int }

func newImageFile([]byte) (imageFile, error) { return imageFile{}, errors.ErrUnsupported }

func (imageFile) mapInto([]byte) error { return errors.ErrUnsupported }

func (imageFile) close() error { return nil }
