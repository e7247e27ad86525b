// SPDX-License-Identifier: Apache-2.0

package podnet

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/containernetworking/plugins/pkg/ns"
	"golang.org/x/sys/unix"
)

// NetnsError says why a path cannot be used as a pod's network namespace.
type NetnsError struct {
	Path    string
	Problem string
}

func (e *NetnsError) Error() string {
	return fmt.Sprintf("network namespace %q: %s", e.Path, e.Problem)
}

// TakenError says that an interface of a name is there and is not ours to replace.
type TakenError struct {
	Name  string
	Where string
}

func (e *TakenError) Error() string {
	return fmt.Sprintf("interface %q exists already in %s", e.Name, e.Where)
}

// Verify returns a *NetnsError if the path is not a network namespace of a pod.
func (p *Plumber) Verify(path string) error {
	pod, err := p.openPod(path)
	if err != nil {
		return err
	}
	return pod.Close()
}

// Gone says whether a path is not a namespace any more. Any doubt, such as a path that
// may not be read, is not gone.
func (p *Plumber) Gone(path string) bool {
	err := ns.IsNSorErr(path)
	return errors.As(err, new(ns.NSPathNotExistErr)) || errors.As(err, new(ns.NSPathNotNSErr))
}

func (p *Plumber) openPod(path string) (ns.NetNS, error) {
	pod, err := ns.GetNS(path)
	switch {
	case errors.As(err, new(ns.NSPathNotExistErr)), errors.Is(err, fs.ErrNotExist):
		return nil, &NetnsError{Path: path, Problem: "it does not exist"}
	case errors.As(err, new(ns.NSPathNotNSErr)):
		return nil, &NetnsError{Path: path, Problem: "it is not a namespace"}
	case err != nil:
		return nil, &NetnsError{Path: path, Problem: err.Error()}
	}
	if kind, err := unix.IoctlRetInt(int(pod.Fd()), unix.NS_GET_NSTYPE); err != nil || kind != unix.CLONE_NEWNET {
		pod.Close()
		return nil, &NetnsError{Path: path, Problem: "it is a namespace, but not of the network"}
	}
	id, err := idOf(pod.Fd())
	if err == nil && id == p.hostID {
		err = errors.New("it is the node's own")
	}
	if err != nil {
		pod.Close()
		return nil, &NetnsError{Path: path, Problem: err.Error()}
	}
	return pod, nil
}

// visit runs fn on a thread that is in the namespace.
func (p *Plumber) visit(path string, fn func() error) error {
	pod, err := p.openPod(path)
	if err != nil {
		return err
	}
	defer pod.Close()
	return pod.Do(func(ns.NetNS) error { return fn() })
}
