// SPDX-License-Identifier: Apache-2.0

package neighbours

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"coelan.io/coelan/internal/intent"
)

// saving is the time that Save waits for more changes.
const saving = time.Second

// tableChanged has Run call Changed and, a little later, Save.
func (r *Resolver) tableChanged(now time.Time) {
	r.changed, r.unsaved = true, true
	if !r.save.Pending() {
		r.timers.Set(&r.save, now.Add(saving))
	}
}

// remember calls Save if it is due.
func (r *Resolver) remember() {
	r.mu.Lock()
	due := r.saveDue && r.Save != nil
	r.saveDue = false
	var saved map[string][]byte
	if due {
		saved = r.encode()
		r.unsaved = false
	}
	r.mu.Unlock()
	if !due {
		return
	}
	err := r.Save(saved)
	r.mu.Lock()
	defer r.mu.Unlock()
	if err == nil {
		r.retry.Reset()
		return
	}
	pause := r.retry.Next()
	r.Log.Warn("cannot save the neighbours of external Networks, retrying", "in", pause, "err", err)
	r.unsaved = true
	r.timers.Set(&r.save, time.Now().Add(pause))
}

// encode is the table by NETWORK/ADDRESS.
func (r *Resolver) encode() map[string][]byte {
	saved := map[string][]byte{}
	for e := range r.entries() {
		if e.known() {
			saved[e.network.name+"/"+e.address.String()] = []byte(e.mac.String())
		}
	}
	return saved
}

// restore reads what encode has written. What cannot be read is asked for again.
func (r *Resolver) restore(saved map[string][]byte) {
	for _, name := range slices.Sorted(maps.Keys(saved)) {
		at := strings.LastIndexByte(name, '/')
		if at < 0 {
			continue
		}
		a, err := netip.ParseAddr(name[at+1:])
		if err != nil {
			continue
		}
		mac, err := intent.ParseMAC(string(saved[name]))
		if err != nil || !unicast(mac) {
			continue
		}
		e := r.network(name[:at]).add(a, time.Now())
		e.phase, e.mac = reachable, mac
	}
}
