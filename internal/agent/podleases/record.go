// SPDX-License-Identifier: Apache-2.0

package podleases

import (
	"encoding/json"
	"fmt"
	"time"

	"coelan.io/coelan/internal/attachment"
	"coelan.io/coelan/internal/dhcp/client"
	"coelan.io/coelan/internal/intent"
)

// kindLease is the kind of the objects that leases are stored as, by their attachments' keys.
const kindLease = "podlease"

// record is an interface as it is stored.
type record struct {
	attachment.Key
	Namespace string       `json:"namespace"`
	Pod       string       `json:"pod"`
	UID       string       `json:"uid"`
	Port      string       `json:"port"` // the name of the Port object
	Network   string       `json:"network"`
	MAC       intent.MAC   `json:"mac"`
	Lease     client.Lease `json:"lease"`
}

// save writes the lease of an interface to disk.
func (l *Leases) save(i *leased) error {
	i.Lease, _ = i.client.Lease()
	data, err := json.Marshal(i.record)
	if err != nil {
		return err
	}
	return l.Store.ChangeObjects(kindLease, map[string][]byte{i.Key.String(): data}, nil)
}

func (l *Leases) forget(k attachment.Key) error {
	return l.Store.ChangeObjects(kindLease, nil, []string{k.String()})
}

// load reads what the last run has written.
func (l *Leases) load(now time.Time) error {
	for name, data := range l.Store.Objects(kindLease) {
		var r record
		if err := json.Unmarshal(data, &r); err != nil {
			return fmt.Errorf("lease of %s: %w", name, err)
		}
		if _, attached := l.Store.Get(r.Key); !attached {
			if err := l.forget(r.Key); err != nil {
				return err
			}
			continue
		}
		i := &leased{record: r, client: client.Restore(r.config(), r.Lease, now), acquired: make(chan struct{})}
		close(i.acquired)
		_, valid := i.client.Lease()
		i.withheld = !valid
		l.interfaces[r.Key] = i
	}
	return nil
}
