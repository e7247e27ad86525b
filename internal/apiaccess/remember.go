// SPDX-License-Identifier: Apache-2.0

package apiaccess

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation"

	"coelan.io/coelan/internal/statefile"
)

// endpoints are addresses, HOST:PORT, of API servers, as the file has them.
type endpoints struct {
	// Current are the endpoints of default/kubernetes when it had any last.
	Current []string `json:"current,omitempty"`
	// Former were endpoints before, the newest first: all API servers may go one after the other,
	// and the first one to go may be the first one to come back.
	Former []string `json:"former,omitempty"`
	// Kubelet is the server of the node's kubelet, for processes that may not read its kubeconfig.
	Kubelet string `json:"kubelet,omitempty"`
}

// Bounds of what is kept.
const (
	maxCurrent = 64
	maxFormer  = 16
	maxFile    = 1 << 16
)

func (e endpoints) equal(o endpoints) bool {
	return slices.Equal(e.Current, o.Current) && slices.Equal(e.Former, o.Former) && e.Kubelet == o.Kubelet
}

// with are the endpoints after default/kubernetes has got new ones. No endpoints change nothing: an
// API server that ends takes its own away, and would be the only one that could name another.
func (e endpoints) with(current []string) endpoints {
	if len(current) == 0 {
		return e
	}
	var former []string
	for _, address := range slices.Concat(e.Current, e.Former) {
		known := slices.Contains(current, address) || slices.Contains(former, address)
		if !known && len(former) < maxFormer {
			former = append(former, address)
		}
	}
	e.Current, e.Former = current, former
	return e
}

// load reads a file; one that is not there is empty. Addresses that cannot be dialed are an error.
func load(path string) (endpoints, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return endpoints{}, nil
	}
	if err != nil {
		return endpoints{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, maxFile))
	if err != nil {
		return endpoints{}, fmt.Errorf("%s: %w", path, err)
	}
	var e endpoints
	if err := json.Unmarshal(data, &e); err != nil {
		return endpoints{}, fmt.Errorf("%s: %w", path, err)
	}
	for _, address := range slices.Concat(e.Current, e.Former, []string{e.Kubelet}) {
		if address != "" && !validAddress(address) {
			return endpoints{}, fmt.Errorf("%s: %q is no address", path, address)
		}
	}
	return e, nil
}

// validAddress says whether HOST:PORT can be dialed: HOST is an address or a DNS name.
func validAddress(address string) bool {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return false
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return false
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		return !ip.IsUnspecified() && !ip.IsMulticast()
	}
	return len(validation.IsDNS1123Subdomain(host)) == 0
}

// update changes what is known, and writes File if it holds something else. The folder and the file
// are readable for all: a controller of the node has no rights beside.
func (a *Access) update(change func(endpoints) endpoints) {
	a.saving.Lock()
	defer a.saving.Unlock()
	kubelet := a.kubeletServer()
	a.mu.Lock()
	now := change(a.known)
	if kubelet != "" {
		now.Kubelet = kubelet
	}
	if !slices.Equal(now.Current, a.known.Current) {
		a.Log.Info("API servers' endpoints changed", "endpoints", now.Current)
	}
	a.known = now
	a.mu.Unlock()
	if a.File == "" || now.equal(a.saved) {
		return
	}
	if err := save(a.File, now); err != nil {
		a.Log.Error("cannot save the endpoints of API servers for the next start", "err", err)
		return
	}
	a.saved = now
}

func save(path string, e endpoints) error {
	const folderMode, fileMode = 0o755, 0o644
	if err := os.MkdirAll(filepath.Dir(path), folderMode); err != nil {
		return err
	}
	return statefile.Write(path, func(f *os.File) error {
		return errors.Join(f.Chmod(fileMode), json.NewEncoder(f).Encode(e))
	})
}
