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
