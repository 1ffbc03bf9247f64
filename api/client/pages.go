package client

// pages returns the items of all pages of a listing. ask takes the token of a
// page, which is empty for the first page, and returns the page's items and
// the token of the next page.
func pages[T any](ask func(token string) (items []T, next string, err error)) (all []T, err error) {
	for token := ""; ; {
		items, next, err := ask(token)
		if err != nil {
			return nil, err
		}
		all = append(all, items...)
		if token = next; token == "" {
			return all, nil
		}
	}
}

// revisedPage is a page of a listing that changes as a whole.
type revisedPage interface {
	comparable
	GetRevision() uint64
	GetNextPageToken() string
}

// samePages is pages for a listing with revisions. It starts again if the revision
// changed between two pages, so that the items belong to the same version of the
// listing, and also returns the last page.
func samePages[T any, P revisedPage](ask func(token string) (items []T, page P, err error)) (all []T, last P, err error) {
	for changed := true; changed; {
		changed = false
		all, err = pages(func(token string) ([]T, string, error) {
			items, page, err := ask(token)
			if changed = err == nil && token != "" && page.GetRevision() != last.GetRevision(); err != nil || changed {
				return nil, "", err
			}
			last = page
			return items, page.GetNextPageToken(), nil
		})
		if err != nil {
			return nil, last, err
		}
	}
	return all, last, nil
}
