// Package autostart brings entities into memory that nobody has asked for:
// those of types that remember their entities, and singletons. It reads their
// ids, a window at a time, and starts them at a bounded rate behind callers.
//
// It never loads an entity itself: a Lane does. A Starter belongs to the lane's
// goroutine and starts none.
package autostart
