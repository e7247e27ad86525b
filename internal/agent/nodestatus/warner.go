// SPDX-License-Identifier: Apache-2.0

package nodestatus

import "sync"

// Events writes Events of type Warning about nodes. It does not block.
type Events interface {
	NodeWarning(name, uid, reason, message string)
}

// Warner tells by Events what is wrong with the node; the same only once.
type Warner struct {
	node   string
	events Events

	mu   sync.Mutex
	uid  string // of the node's object
	told string
}

// NewWarner makes the one of the node with that name.
func NewWarner(node string, events Events) *Warner { return &Warner{node: node, events: events} }

// Seen takes the UID of the node's object. Before, there is nothing to attach an Event to.
func (w *Warner) Seen(uid string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.uid = uid
}

// Ready says whether there is something to attach an Event to.
func (w *Warner) Ready() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.uid != ""
}

// Warn tells what is wrong, unless it was the last thing told.
func (w *Warner) Warn(reason string, err error) {
	w.mu.Lock()
	uid, again := w.uid, w.told == err.Error()
	if uid != "" {
		w.told = err.Error()
	}
	w.mu.Unlock()
	if uid != "" && !again {
		w.events.NodeWarning(w.node, uid, reason, err.Error())
	}
}

// Healthy has the next problem told although it was told before.
func (w *Warner) Healthy() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.told = ""
}
